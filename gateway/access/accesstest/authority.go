// Package accesstest has a certificate authority and an issuer of JWTs, for tests of access
// control. They work as real ones do, but no other program trusts them.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// Pool has the certificate of the authority, and File is a file with it.
	Pool *x509.CertPool
	File string
}

// NewAuthority returns an authority with a new key.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), Pool: x509.NewCertPool(), File: filepath.Join(t.TempDir(), "ca.pem")}
	template := newTemplate("an authority")
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.Pool.AddCert(a.cert)
	writePEM(t, a.File, "CERTIFICATE", der)
	return a
}

// Server writes a server certificate for the loopback addresses to cert.pem and key.pem in a
// directory.
func (a *Authority) Server(dir string) (cert, key string) {
	a.t.Helper()
	template := newTemplate("skein")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return a.sign(template, dir)
}

// Node writes a certificate for the loopback address that is valid for a server and for a client,
// as the nodes of a cluster need it.
func (a *Authority) Node(dir string) (cert, key string) {
	a.t.Helper()
	template := newTemplate("a node")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return a.sign(template, dir)
}

// Client writes a client certificate with a name to cert.pem and key.pem in a directory. It also
// returns the certificate.
func (a *Authority) Client(dir, name string) (pair tls.Certificate, cert, key string) {
	a.t.Helper()
	template := newTemplate(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key = a.sign(template, dir)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair, cert, key
}

// ClientUntil does the same as Client, with a certificate that expires at the time until.
func (a *Authority) ClientUntil(dir, name string, until time.Time) tls.Certificate {
	a.t.Helper()
	return a.clientBetween(dir, name, until.Add(-time.Hour), until)
}

// ClientFrom does the same as Client, with a certificate that becomes valid at the time from.
func (a *Authority) ClientFrom(dir, name string, from time.Time) tls.Certificate {
	a.t.Helper()
	return a.clientBetween(dir, name, from, from.Add(time.Hour))
}

// clientBetween writes a client certificate that is valid from one time until another.
func (a *Authority) clientBetween(dir, name string, from, until time.Time) tls.Certificate {
	a.t.Helper()
	template := newTemplate(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.NotBefore = from
	template.NotAfter = until
	pair, err := tls.LoadX509KeyPair(a.sign(template, dir))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// sign signs a certificate with a new key, and writes both to files in a directory.
func (a *Authority) sign(template *x509.Certificate, dir string) (cert, key string) {
	a.t.Helper()
	private := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	cert = filepath.Join(dir, "cert.pem")
	key = filepath.Join(dir, "key.pem")
	writePEM(a.t, cert, "CERTIFICATE", der)
	writePEM(a.t, key, "PRIVATE KEY", encoded)
	return cert, key
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newTemplate returns an unsigned certificate with a name, which is valid for an hour.
func newTemplate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// writePEM writes one PEM block to a file.
func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
