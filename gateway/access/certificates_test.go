package access

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/access/accesstest"
)

// handshake makes a handshake and returns the server's certificate.
func handshake(t *testing.T, server, client *tls.Config) (serial string, err error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("hello"))
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_, err = io.ReadAll(conn)
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), err
}

func TestChangedCertificatesServeNewHandshakes(t *testing.T) {
	ca, stranger := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	dir := t.TempDir()
	cert, key := ca.Server(dir)
	c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
	if err != nil {
		t.Fatal(err)
	}
	good, _, _ := ca.Client(t.TempDir(), "web")
	bad, _, _ := stranger.Client(t.TempDir(), "web")
	trusting := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool, Certificates: certs, MinVersion: tls.VersionTLS12}
	}
	first, err := handshake(t, c.Config(), trusting(good))
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*tls.Config{
		"no certificate":         trusting(),
		"of another authority":   trusting(bad),
		"an old version of TLS":  {RootCAs: ca.Pool, Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS11},
		"a server's certificate": trusting(mustLoadPair(t, cert, key)),
	} {
		if _, err := handshake(t, c.Config(), client); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
	// A half-written pair leaves the previous, and the whole one takes its place.
	next := t.TempDir()
	newCert, newKey := ca.Server(next)
	mustRename(t, newCert, cert)
	c.config.current(afterChecks(1))
	if serial, err := handshake(t, c.Config(), trusting(good)); err != nil || serial != first {
		t.Errorf("%s, %v", serial, err)
	}
	mustRename(t, newKey, key)
	c.config.current(afterChecks(2))
	if serial, err := handshake(t, c.Config(), trusting(good)); err != nil || serial == first {
		t.Errorf("%s, %v", serial, err)
	}
	// An authority that is no longer trusted.
	mustRename(t, stranger.File, ca.File)
	c.config.current(afterChecks(3))
	if _, err := handshake(t, c.Config(), trusting(good)); err == nil {
		t.Error("a client of the previous authority is let in")
	}
}

func mustLoadPair(t *testing.T, cert, key string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCertificatesRefusesUnusableFiles(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Server(t.TempDir())
	_, otherKey := ca.Server(t.TempDir())
	junk := filepath.Join(t.TempDir(), "junk")
	mustWriteFile(t, junk, "geheim")
	for _, f := range []Files{
		{},
		{Cert: cert},
		{Key: key},
		{Cert: cert, Key: otherKey},
		{Cert: junk, Key: key},
		{Cert: cert, Key: junk},
		{Cert: cert, Key: key, ClientCA: junk},
		{Cert: cert, Key: key, ClientCA: "missing"},
	} {
		if _, err := OpenCertificates(f, nil); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
