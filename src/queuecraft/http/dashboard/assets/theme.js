// Light or dark: as the machine is, until somebody chooses.

const NAME = 'queuecraft.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

/** @returns {'light' | 'dark'} */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return dark.matches ? 'dark' : 'light';
}

/** The other one, remembered here. */
export function toggleTheme() {
  const next = theme() === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(NAME, next);
  } catch {
    // Then it holds until the page is closed.
  }
}
