package access

import (
	"errors"
	"fmt"
)

// Errors of [Authenticator.Authorize]. The texts are for clients: they say what is wrong or what to
// do, and quote nothing of what was sent. Only a caller whose token has a valid signature learns
// what is wrong with its claims.
var (
	// ErrMissing means that the call has neither a token nor a certificate that the token file
	// names.
	ErrMissing = errors.New("this service must know who calls: send the header \"Authorization: Bearer TOKEN\"")
	// ErrInvalid means that the token identifies no caller.
	ErrInvalid = errors.New("the token is not valid")
	// ErrExpired means that the token was valid once.
	ErrExpired = errors.New("the token has expired")
)

// Errors that say why a token is not valid. All of them wrap ErrInvalid.
var (
	errScheme      = fmt.Errorf("%w: the header Authorization must be \"Bearer TOKEN\", once", ErrInvalid)
	errTooLong     = fmt.Errorf("%w: it is longer than %d bytes", ErrInvalid, maxTokenBytes)
	errCertificate = fmt.Errorf("%w: it is bound to a client certificate, which this connection has not shown", ErrInvalid)
	errIssuer      = fmt.Errorf("%w: it is of another issuer", ErrInvalid)
	errAudience    = fmt.Errorf("%w: it is meant for another service", ErrInvalid)
	errNotYet      = fmt.Errorf("%w: it is not valid yet", ErrInvalid)
	errNoExpiry    = fmt.Errorf("%w: it does not say when it expires", ErrInvalid)
	errClaims      = fmt.Errorf("%w: its claims are malformed", ErrInvalid)
)
