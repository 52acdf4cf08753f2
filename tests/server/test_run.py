"""Where a server may listen, and what it says to whoever starts it."""

import pytest

from dither.errors import InvalidParameter
from dither.server.run import Place, Running


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_on_this_machine_no_certificate_is_needed(host):
    place = Place(host=host)
    assert place.local
    assert place.tls() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "db.example.org", ""])
def test_beyond_it_one_is(host):
    with pytest.raises(InvalidParameter, match="must not travel in clear"):
        Place(host=host)


def test_a_certificate_has_a_key(tmp_path):
    with pytest.raises(InvalidParameter, match="both files"):
        Place(certificate=tmp_path / "a.pem")
    with pytest.raises(InvalidParameter, match="both files"):
        Place(key=tmp_path / "a.pem")


def test_files_that_are_no_certificate(tmp_path):
    (tmp_path / "a.pem").write_text("nothing")
    place = Place(host="0.0.0.0", certificate=tmp_path / "a.pem", key=tmp_path / "missing.pem")
    with pytest.raises(InvalidParameter, match="two PEM files"):
        place.tls()


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports(port):
    with pytest.raises(InvalidParameter, match="from 0 to 65535"):
        Place(port=port)
    with pytest.raises(InvalidParameter, match="from 0 to 65535"):
        Place(pg_port=port)


def test_the_line_for_psql():
    server = Running(url="http://[::1]:8765", pg_port=5433, dataset="shop", owner_token=None, stop=lambda: None)
    assert server.psql() == 'psql "host=::1 port=5433 user=owner dbname=shop"'
    without = Running(url="http://127.0.0.1:1", pg_port=None, dataset="shop", owner_token=None, stop=lambda: None)
    assert without.psql() is None
