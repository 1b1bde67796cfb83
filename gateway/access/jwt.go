package access

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	josejson "github.com/go-jose/go-jose/v4/json" // tells names by their case, and refuses one that stands twice
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skein-feed/skein/events"
)

// leeway is by how much the clocks of issuer and service may differ.
const leeway = 30 * time.Second

// issuer is whose JWTs are taken, and for whom they must be.
type issuer struct{ name, audience string }

// claims are what a JWT says, beside what every JWT does.
type claims struct {
	jwt.Claims
	Roles claimedRoles `json:"skein_roles"`
	User  claimedUser  `json:"skein_user"`
}

// verify reads a JWT. It does not look into one whose signature is not good.
func (is issuer) verify(all *keys, text string, now time.Time) (Caller, time.Time, error) {
	parsed, err := jwt.ParseSigned(text, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return Caller{}, time.Time{}, ErrInvalid
	}
	key, ok := all.find(parsed.Headers[0])
	if !ok {
		return Caller{}, time.Time{}, ErrInvalid
	}
	// The signature comes first: only a caller with a token of the issuer may learn what is wrong with its claims.
	var payload josejson.RawMessage
	if err := parsed.Claims(key, &payload); err != nil {
		return Caller{}, time.Time{}, ErrInvalid
	}
	var c claims
	if err := josejson.Unmarshal(payload, &c); err != nil {
		return Caller{}, time.Time{}, errClaims
	}
	if c.Expiry == nil {
		return Caller{}, time.Time{}, errNoExpiry
	}
	err = c.ValidateWithLeeway(jwt.Expected{Issuer: is.name, AnyAudience: jwt.Audience{is.audience}, Time: now}, leeway)
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
		caller.Name = "jwt" // what is no id does not belong in a log
	}
	return caller, c.Expiry.Time().Add(leeway), nil
}

// claimedRoles reads a list of names, or names with spaces between them, which is the form of scopes. It ignores unknown names, because
// the list may be for other services too.
type claimedRoles Roles

// UnmarshalJSON is part of json.Unmarshaler.
func (r *claimedRoles) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		var scopes string
		if err := json.Unmarshal(data, &scopes); err != nil {
			return errClaims
		}
		names = strings.Fields(scopes)
	}
	for _, name := range names {
		*r |= claimedRoles(roleOf(name))
	}
	return nil
}

// claimedUser is an id. Where the claim is there at all it must be one: an empty one is more likely a mistake of the issuer than a
// caller who may act for every user.
type claimedUser string

// UnmarshalJSON is part of json.Unmarshaler.
func (u *claimedUser) UnmarshalJSON(data []byte) error {
	var id *string
	if err := json.Unmarshal(data, &id); err != nil || id == nil || events.ValidateID(*id) != nil {
		return errClaims
	}
	*u = claimedUser(*id)
	return nil
}
