"""The settings of the project: no more than it needs."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only for trying it out")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DEBUG = False
TIME_ZONE = "UTC"
USE_TZ = True

INSTALLED_APPS = ["examples.django_app"]
ROOT_URLCONF = "examples.django_app.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
        "OPTIONS": {"timeout": 20},
    }
}
