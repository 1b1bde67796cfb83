package access

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	// Unlike encoding/json, this decoder distinguishes upper and lower case in names, and refuses
	// duplicate names. So skein finds the same claims in a token as its issuer.
	josejson "github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skein-feed/skein/events"
)

// leeway is how much the clocks of the issuer and of the service may differ.
const leeway = 30 * time.Second

// issuer has the issuer and the audience that a JWT must name.
type issuer struct{ name, audience string }

// claims are the claims of a JWT: the registered ones, and those of skein.
type claims struct {
	jwt.Claims
	Roles claimedRoles `json:"skein_roles"`
	User  claimedUser  `json:"skein_user"`
}

// verify verifies a JWT. It returns the caller, and the time until which the token is valid, which
// includes the leeway.
func (i issuer) verify(keys *keySet, text string, now time.Time) (Caller, time.Time, error) {
	parsed, err := jwt.ParseSigned(text, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return Caller{}, time.Time{}, ErrInvalid
	}
	key, ok := keys.find(parsed.Headers[0])
	if !ok {
		return Caller{}, time.Time{}, ErrInvalid
	}

	// Verify the signature before reading the claims: only a caller with a token of the issuer may
	// learn what is wrong with the claims.
	var payload josejson.RawMessage
	if err := parsed.Claims(key, &payload); err != nil {
		return Caller{}, time.Time{}, ErrInvalid
	}

	var c claims
	if err := josejson.Unmarshal(payload, &c); err != nil {
		return Caller{}, time.Time{}, errClaims
	}
	// Package jwt accepts a token without an expiry. Such a token would be valid until its key is
	// removed.
	if c.Expiry == nil {
		return Caller{}, time.Time{}, errNoExpiry
	}
	err = c.ValidateWithLeeway(jwt.Expected{Issuer: i.name, AnyAudience: jwt.Audience{i.audience}, Time: now}, leeway)
	switch {
	case err == nil:
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return Caller{}, time.Time{}, errIssuer
	case errors.Is(err, jwt.ErrInvalidAudience):
		return Caller{}, time.Time{}, errAudience
	case errors.Is(err, jwt.ErrExpired):
		return Caller{}, time.Time{}, ErrExpired
	default:
		return Caller{}, time.Time{}, errNotYet
	}

	caller := Caller{Name: c.Subject, Roles: Roles(c.Roles), User: string(c.User)}
	if events.ValidateID(caller.Name) != nil {
		caller.Name = "jwt" // logs show the name, so it must be short and printable
	}
	return caller, c.Expiry.Time().Add(leeway), nil
}

// claimedRoles decodes the roles of a JWT: a list of names or, as in OAuth scopes, one string of
// names that are separated by spaces. It ignores unknown names, because the list may also be for
// other services.
type claimedRoles Roles

// UnmarshalJSON implements [json.Unmarshaler].
func (r *claimedRoles) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		// The claim is no list, so it must be one string.
		var scopes string
		if err := json.Unmarshal(data, &scopes); err != nil {
			return errClaims
		}
		names = strings.Fields(scopes)
	}

	for _, name := range names {
		*r |= claimedRoles(roleOf(name)) // 0 for an unknown name
	}
	return nil
}

// claimedUser decodes the id of the user to whom the caller is bound. If the claim is present, it
// must be a valid id: an empty claim is more likely a mistake of the issuer than a caller who may
// act for every user.
type claimedUser string

// UnmarshalJSON implements [json.Unmarshaler].
func (u *claimedUser) UnmarshalJSON(data []byte) error {
	var id *string // nil for null, which a string could not tell from ""
	if err := json.Unmarshal(data, &id); err != nil || id == nil || events.ValidateID(*id) != nil {
		return errClaims
	}
	*u = claimedUser(*id)
	return nil
}
