"""Timestamps, durations, URLs, addresses, networks and formats: the values that apiserver's library documents."""

from __future__ import annotations

import pytest

from moorage.api.cel.bounds import CompileError, EvalError
from moorage.api.cel.program import compile_expression

HOLDS = [
    "timestamp('2026-01-02T03:04:05.5Z') + duration('1h') > timestamp('2026-01-02T04:00:00Z')",
    "duration('1h') + timestamp('2026-01-02T03:04:05Z') == timestamp('2026-01-02T04:04:05Z')",
    "timestamp('2026-01-02T03:04:05Z') - timestamp('2026-01-01T03:04:05Z') == duration('24h')",
    "timestamp('2026-01-02T03:04:05Z') - duration('5s') == timestamp('2026-01-02T03:04:00Z')",
    "string(timestamp('2026-01-02T03:04:05.5+01:00')) == '2026-01-02T02:04:05.5Z'",
    "string(duration('1h30m1.5s')) == '5401.5s'",
    "-duration('5s') < duration('0s') && int(duration('1us')) == 1000 && int(timestamp(7)) == 7",
    "duration('90s').getMinutes() == 1 && duration('-90s').getSeconds() == -90 && duration('1.5s').getMilliseconds() == 1500",
    "timestamp('2026-11-22T10:00:00Z').getDayOfWeek() == 0 && timestamp('2026-11-22T10:00:00Z').getMonth() == 10",
    "timestamp('2026-11-22T23:30:00Z').getHours('+01:00') == 0 && timestamp('2026-07-22T23:30:00Z').getHours('Europe/Paris') == 1",  # noqa: E501
    "timestamp('2026-11-22T10:00:00Z').getDate() == 22 && timestamp('2026-11-22T10:00:00Z').getDayOfMonth() == 21",
    "[timestamp(2), timestamp(1)].max() == timestamp(2) && [duration('1s'), duration('2s')].sum() == duration('3s')",
    "type(duration('1s')) != type(timestamp(1)) && type(duration('1s')) == type(duration('2s'))",
    "isURL('https://user:pass@example.com:80/path?query=val#fragment') && isURL('/absolute-path')",
    "!isURL('https://a:b:c/') && !isURL('../relative-path') && !isURL('')",
    "url('https://example.com:80/').getHost() == 'example.com:80' && url('https://[::1]:80/').getHostname() == '::1'",
    "url('https://example.com/').getPort() == '' && url('/path').getScheme() == ''",
    "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
    "url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
    "url('https://example.com/path?').getQuery() == {}",
    "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP(':::1') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",  # noqa: E501
    "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6 && string(ip('2001:DB8::1')) == '2001:db8::1'",
    "ip.isCanonical('127.0.0.1') && !ip.isCanonical('2001:DB8::ABCD') && ip.isCanonical('2001:db8::abcd')",
    "ip('0.0.0.0').isUnspecified() && ip('::1').isLoopback() && ip('224.0.0.1').isLinkLocalMulticast()",
    "ip('169.254.169.254').isLinkLocalUnicast() && ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",  # noqa: E501
    "ip('10.0.0.1') == ip('10.0.0.1') && ip('10.0.0.1') != ip('10.0.0.2')",
    "isCIDR('192.168.0.0/16') && isCIDR('::1/128') && !isCIDR('192.168.0.0/33') && !isCIDR('192.168.0.0') && !isCIDR('1.2.3.4/08')",  # noqa: E501
    "cidr('192.168.0.0/24').containsIP(ip('192.168.0.1')) && !cidr('192.168.0.0/24').containsIP('192.168.1.1')",
    "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24') && !cidr('192.168.0.0/24').containsCIDR(cidr('192.168.0.0/16'))",
    "cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24')",
    "cidr('192.168.0.0/16').prefixLength() == 16 && string(cidr('::1/64')) == '::1/64'",
    "!format.dns1123Label().validate('my-label-name').hasValue() && format.dns1123Label().validate('a.b').hasValue()",
    "!format.named('dns1123LabelPrefix').value().validate('my-prefix-').hasValue() && !format.named('nothing').hasValue()",
    "format.uuid().validate('x').value() == ['does not match the UUID format'] && !format.date().validate('2021-01-01').hasValue()",  # noqa: E501
    "'%d of %s is %.2f'.format([3, 'x', 1.5]) == '3 of x is 1.50' && '%s'.format([[1, 2]]) == '[1, 2]'",
    "'%x %X %b %o %%'.format([255, 255, 5, 8]) == 'ff FF 101 10 %' && '%s %s'.format([timestamp(0), {'a': 1}]) == '1970-01-01T00:00:00Z {a: 1}'",  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize("source", HOLDS)
def test_what_holds(source):
    assert compile_expression(source, {}).evaluate({}) is True


FAILS = {
    "duration('x' + '')": "type conversion error from 'string' to 'google.protobuf.Duration'",
    "timestamp('2026-01-02' + '')": "type conversion error from 'string' to 'google.protobuf.Timestamp'",
    "timestamp('9999-12-31T23:59:59Z') + duration('1s')": "timestamp overflow",
    "duration('9223372036s') + duration('1h')": "integer overflow",
    "timestamp(0).getHours('Nowhere/Land')": "unknown time zone Nowhere/Land",
    "url('../x')": 'URL parse error during conversion from string: parse "../x": invalid URI for request',
    "ip('10.0.0.1%eth0')": "IP Address \"10.0.0.1%eth0\" parse error during conversion from string",
    "ip('::ffff:1.2.3.4')": 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed',
    "cidr('10.0.0.0')": "network address parse error during conversion from string",
    "('%d' + '').format(['a'])": "error during formatting: decimal clause can not be used on string",
    "('%s %s' + '').format(['a'])": "index 1 out of range",
    "('%q' + '').format(['a'])": "could not parse formatting clause: unrecognized formatting clause \"q\"",
}  # fmt: skip


@pytest.mark.parametrize(("source", "said"), FAILS.items())
def test_what_fails(source, said):
    with pytest.raises(EvalError) as error:
        compile_expression(source, {}).evaluate({})
    assert said in str(error.value)


def test_types_are_checked():
    with pytest.raises(CompileError, match=r"no matching overload for '_>_' applied to '\(timestamp, int\)'"):
        compile_expression("timestamp(1) > 1", {})
    with pytest.raises(CompileError, match=r"undefined field 'x'"):
        compile_expression("duration('1s').x == 1", {})
