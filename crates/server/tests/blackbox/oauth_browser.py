"""A browser that runs no script: it reads a page, fills in its form and tells where it is sent."""

import html.parser
import http.cookiejar
import urllib.error
import urllib.parse
import urllib.request


class Form(html.parser.HTMLParser):
    """The first form of a page, and the values of its hidden fields."""

    def __init__(self, page):
        super().__init__()
        self.action = None
        self.fields = {}
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form" and self.action is None:
            self.action = attributes["action"]
        elif tag == "input" and attributes.get("type") == "hidden":
            self.fields[attributes["name"]] = attributes["value"]
        elif tag == "script":
            self.scripts += 1


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Lets the caller see where it is sent."""

    def redirect_request(self, *_):
        return None


class Browser:
    def __init__(self):
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(cookies, NoRedirect)

    def send(self, url, form=None):
        """Sends a request. Returns the status, the headers and the body, whatever the status is."""
        body = None if form is None else urllib.parse.urlencode(form).encode()
        return self.send_request(urllib.request.Request(url, data=body))

    def send_request(self, request):
        try:
            answer = self.opener.open(request, timeout=120)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.headers, answer.read().decode()

    def log_in(self, url, name, password):
        """Logs in on the page at an address. Returns where the browser is sent then."""
        status, headers, page = self.send(url)
        assert status == 200, (status, page)
        assert "default-src 'none'" in headers["Content-Security-Policy"], headers
        form = Form(page)
        assert form.scripts == 0, page
        action = urllib.parse.urljoin(url, form.action)
        wrong = {**form.fields, "username": name, "password": "not " + password}
        status, _, page = self.send(action, wrong)
        assert status == 403, (status, page)
        form = Form(page)
        right = {**form.fields, "username": name, "password": password}
        status, headers, page = self.send(urllib.parse.urljoin(url, form.action), right)
        assert status == 303, (status, page)
        return headers["Location"]
