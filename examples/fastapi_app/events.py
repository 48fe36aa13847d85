"""What the web application and its workers say to each other."""

from pydantic import BaseModel, Field

from queuecraft import Event


class Order(BaseModel):
    """What a customer wants. FastAPI checks what comes in, QueueCraft what arrives."""

    id: str = Field(max_length=40)
    product: str = Field(max_length=40)
    quantity: int = Field(gt=0, le=100)


class Price(BaseModel):
    """What one piece costs."""

    product: str
    cents: int | None  # None if it is not sold


order_placed = Event("order.placed", Order)
price_asked = Event("price.asked", str)
