"""stub"""


class StandIn:
    pass
