"""A web application that takes orders and asks for prices; its workers run beside it or elsewhere.

`uvicorn examples.fastapi_app.app:app` serves it.
"""
