"""HTTP: routers, problem documents and the edge's types over ``schedd.service``."""
