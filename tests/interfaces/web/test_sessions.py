"""Links and sessions: each secret opens what it is for, for a while, and only so many are kept."""

from moorage.interfaces.web.site import LINK_S, MOST_LINKS, MOST_SESSIONS, SESSION_S, Sessions


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_token_is_no_cookie_and_a_cookie_is_no_token():
    sessions = Sessions(Clock())
    token = sessions.make_token("ann")
    cookie = sessions.start("bob")
    assert sessions.user_of(token) is None
    assert sessions.open(cookie) is None
    assert sessions.user_of(sessions.open(token)) == "ann"
    assert sessions.open(token) is None
    for wrong in ("", "x", "x" * 10_000, "\udcff", cookie[:-1], cookie + "x"):
        assert sessions.user_of(wrong) is None
        assert sessions.open(wrong) is None
    sessions.end(cookie)
    assert sessions.user_of(cookie) is None


def test_links_and_sessions_end():
    clock = Clock()
    sessions = Sessions(clock)
    token, cookie = sessions.make_token("ann"), sessions.start("ann")
    clock.now = SESSION_S
    assert sessions.user_of(cookie) == "ann"
    clock.now = SESSION_S + 1
    assert sessions.user_of(cookie) is None
    clock.now = LINK_S + 1
    assert sessions.open(token) is None


def test_links_and_sessions_are_limited():
    sessions = Sessions(Clock())
    tokens = [sessions.make_token("ann") for _ in range(MOST_LINKS + 1)]
    assert sessions.open(tokens[0]) is None
    assert sessions.open(tokens[1]) is not None
    cookies = [sessions.start("ann") for _ in range(MOST_SESSIONS + 1)]
    assert [sessions.user_of(one) for one in (cookies[0], cookies[1], cookies[-1])] == [None, "ann", "ann"]
