// Package accesstest has an authority that signs certificates, and an issuer of JWTs, for tests of access. Both work as real ones
// do, but no other program trusts them.
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

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// Pool holds its own certificate.
	Pool *x509.CertPool
	// File has its own certificate.
	File string
}

// NewAuthority makes one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), Pool: x509.NewCertPool(), File: filepath.Join(t.TempDir(), "ca.pem")}
	template := template("an authority")
	template.IsCA, template.KeyUsage, template.BasicConstraintsValid = true, x509.KeyUsageCertSign, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.Pool.AddCert(a.cert)
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Server writes a certificate for the loopback to cert.pem and key.pem in a directory.
func (a *Authority) Server(dir string) (cert, key string) {
	a.t.Helper()
	template := template("skein")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return a.sign(template, dir)
}

// Node writes a certificate of a server for the loopback that is a client too.
func (a *Authority) Node(dir string) (cert, key string) {
	a.t.Helper()
	template := template("a node")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return a.sign(template, dir)
}

// Client writes a certificate with a name to cert.pem and key.pem in a directory, and returns it as well.
func (a *Authority) Client(dir, name string) (pair tls.Certificate, cert, key string) {
	a.t.Helper()
	template := template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key = a.sign(template, dir)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair, cert, key
}

// ClientUntil is as Client, good until a time.
func (a *Authority) ClientUntil(dir, name string, until time.Time) tls.Certificate {
	a.t.Helper()
	return a.client(dir, name, until.Add(-time.Hour), until)
}

// ClientFrom is as Client, good from a time on.
func (a *Authority) ClientFrom(dir, name string, from time.Time) tls.Certificate {
	a.t.Helper()
	return a.client(dir, name, from, from.Add(time.Hour))
}

func (a *Authority) client(dir, name string, from, until time.Time) tls.Certificate {
	a.t.Helper()
	template := template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.NotBefore, template.NotAfter = from, until
	pair, err := tls.LoadX509KeyPair(a.sign(template, dir))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

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
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(a.t, cert, "CERTIFICATE", der)
	write(a.t, key, "PRIVATE KEY", encoded)
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

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
