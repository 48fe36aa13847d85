// Before anything is drawn: the light or dark that was chosen the last time.
try {
  const chosen = localStorage.getItem('queuecraft.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; then it is as the machine is.
}
