# Serves moto's DynamoDB, one request after the other, because moto itself does not make conditions and
# transactions atomic. Arguments: the folder that moto was installed into, the port.
import sys

sys.path.insert(0, sys.argv[1])

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[2]), application, threaded=False)
