"""Where requests go."""

from django.urls import path

from examples.django_app import views

urlpatterns = [
    path("orders/<str:id>", views.order),
]
