package main

import (
	"fmt"
	"log/slog"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/gateway/access"
)

// accessFlags configure authentication and TLS.
type accessFlags struct {
	TLSCert     string `name:"tls-cert" help:"Certificate of the service, PEM, with its chain." type:"path" placeholder:"FILE"`
	TLSKey      string `name:"tls-key" help:"Key of the certificate, PEM." type:"path" placeholder:"FILE"`
	TLSClientCA string `name:"tls-client-ca" help:"Demand client certificates that these authorities have signed, PEM." type:"path" placeholder:"FILE"`

	Tokens      string `help:"A file with the hashed tokens of callers, as skein token new writes it." type:"path" placeholder:"FILE"`
	JWKS        string `name:"jwks" help:"Accept JWTs that were signed with the keys of this JSON Web Key Set." type:"path" placeholder:"FILE"`
	JWTIssuer   string `name:"jwt-issuer" help:"The issuer (iss) that a JWT must have." placeholder:"NAME"`
	JWTAudience string `name:"jwt-audience" help:"A name that the audience (aud) of a JWT must contain." placeholder:"NAME"`

	AllowedHosts []string `help:"Without --tokens and --jwks: answer calls to these host names, not only to localhost; * means any." placeholder:"HOST"`
	CORSOrigin   []string `name:"cors-origin" help:"Web pages of these origins may call the service; * means all." placeholder:"ORIGIN"`
}

// hasTLS reports whether the flags configure TLS. It opens no file.
func (f *accessFlags) hasTLS() bool { return f.TLSCert != "" }

// authenticates reports whether the flags demand that callers prove who they are. It opens no file.
func (f *accessFlags) authenticates() bool { return f.Tokens != "" || f.JWKS != "" }

// scheme returns the scheme of the service's URL.
func (f *accessFlags) scheme() string {
	if f.hasTLS() {
		return "https://"
	}
	return "http://"
}

// checkAccess returns an error for flags that have no effect without others.
func (f *accessFlags) checkAccess() error {
	for _, c := range []struct {
		isSet      bool
		flag       string
		otherIsSet bool
		other      string
	}{
		{f.TLSCert != "", "--tls-cert", f.TLSKey != "", "--tls-key"},
		{f.TLSKey != "", "--tls-key", f.TLSCert != "", "--tls-cert"},
		{f.TLSClientCA != "", "--tls-client-ca", f.TLSCert != "", "--tls-cert"},
		{f.JWKS != "", "--jwks", f.JWTIssuer != "", "--jwt-issuer"},
		{f.JWKS != "", "--jwks", f.JWTAudience != "", "--jwt-audience"},
		{f.JWTIssuer != "", "--jwt-issuer", f.JWKS != "", "--jwks"},
		{f.JWTAudience != "", "--jwt-audience", f.JWKS != "", "--jwks"},
	} {
		if c.isSet && !c.otherIsSet {
			return command.Usagef("%s needs %s", c.flag, c.other)
		}
	}
	if len(f.AllowedHosts) > 0 && f.authenticates() {
		return command.Usagef("--allowed-hosts is for a service without --tokens and --jwks: with them it answers to any host")
	}
	return nil
}

// openAccess reads the files of the flags.
func (f *accessFlags) openAccess(logger *slog.Logger) (o service.Access, err error) {
	o.Origins = f.CORSOrigin
	o.Hosts = f.AllowedHosts
	if f.hasTLS() {
		files := access.Files{Cert: f.TLSCert, Key: f.TLSKey, ClientCA: f.TLSClientCA}
		o.Certificates, err = access.OpenCertificates(files, logger)
		if err != nil {
			return o, fmt.Errorf("--tls-cert, --tls-key, --tls-client-ca: %w", err)
		}
	}
	if f.authenticates() {
		o.Gate, err = access.Open(access.Options{
			Tokens: f.Tokens, JWKS: f.JWKS, Issuer: f.JWTIssuer, Audience: f.JWTAudience, Logger: logger,
		})
		if err != nil {
			return o, fmt.Errorf("--tokens, --jwks: %w", err)
		}
	}
	return o, nil
}
