package access

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/access/accesstest"
)

// A client without a valid certificate of the authority, or without a current version of TLS,
// cannot complete a handshake.
func TestOnlyTrustedClientsCompleteTheHandshake(t *testing.T) {
	ca, other := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := ca.Server(t.TempDir())
	c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
	if err != nil {
		t.Fatal(err)
	}
	good, _, _ := ca.Client(t.TempDir(), "web")
	foreign, _, _ := other.Client(t.TempDir(), "web")
	// The certificate is good, and the key is of another.
	stolen := tls.Certificate{Certificate: good.Certificate, PrivateKey: foreign.PrivateKey}
	client := func(cert ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool, Certificates: cert, MinVersion: tls.VersionTLS12}
	}
	versions := func(least, most uint16, ciphers ...uint16) *tls.Config {
		config := client(good)
		config.MinVersion, config.MaxVersion, config.CipherSuites = least, most, ciphers
		return config
	}
	if _, err := handshake(t, c.Config(), client(good)); err != nil {
		t.Fatal(err)
	}
	for _, a := range []struct {
		name   string
		client *tls.Config
	}{
		{"no certificate", client()},
		{"a certificate of another authority, with a good name", client(foreign)},
		{"a certificate that has expired", client(ca.ClientUntil(t.TempDir(), "web", time.Now().Add(-time.Minute)))},
		{"a certificate that is not valid yet", client(ca.ClientFrom(t.TempDir(), "web", time.Now().Add(time.Hour)))},
		{"a certificate of a server", client(mustLoadPair(t, cert, key))},
		{"a good certificate without its key", client(stolen)},
		{"TLS 1.0 and 1.1", versions(tls.VersionTLS10, tls.VersionTLS11)},
		{"TLS 1.2 without forward secrecy", versions(tls.VersionTLS12, tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256)},
		{"TLS 1.2 with 3DES or RC4", versions(tls.VersionTLS12, tls.VersionTLS12,
			tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA)},
	} {
		if _, err := handshake(t, c.Config(), a.client); err == nil {
			t.Errorf("%s: let in", a.name)
		} else if _, ok := errors.AsType[*net.OpError](err); !ok && !strings.Contains(err.Error(), "tls") {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

// A resumed TLS session is verified with the current authorities: a client of an authority that is
// no longer trusted is refused.
func TestNoSessionOutlivesItsAuthority(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		ca, other := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
		cert, key := ca.Server(t.TempDir())
		c, err := OpenCertificates(Files{Cert: cert, Key: key, ClientCA: ca.File}, nil)
		if err != nil {
			t.Fatal(err)
		}
		web, _, _ := ca.Client(t.TempDir(), "web")
		client := &tls.Config{
			RootCAs: ca.Pool, Certificates: []tls.Certificate{web}, MinVersion: version, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "127.0.0.1",
		}
		server := c.Config() // the one that a listener has for its whole life
		if _, _, err := connect(t, server, client); err != nil {
			t.Fatal(err)
		}
		if resumed, _, err := connect(t, server, client); err != nil || !resumed {
			t.Fatalf("%s: resumed %v, %v", tls.VersionName(version), resumed, err)
		}
		mustRename(t, other.File, ca.File)
		c.config.current(afterChecks(1))
		if resumed, text, err := connect(t, server, client); err == nil && text != "" {
			t.Errorf("%s: let in, resumed %v", tls.VersionName(version), resumed)
		}
	}
}

// connect makes a connection and reads what it is sent, with which tickets for a next one come.
func connect(t *testing.T, server, client *tls.Config) (resumed bool, text string, err error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return false, "", err
	}
	defer conn.Close()
	all, err := io.ReadAll(conn)
	return conn.ConnectionState().DidResume, string(all), err
}
