package request

import (
	"errors"
	"strconv"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// maxItems is how many items a list of a request may have if its proto has no rule for it.
const maxItems = 1000

// Rules checks messages against the protovalidate rules in their protos.
type Rules struct{ validator protovalidate.Validator }

// NewRules returns Rules that are ready to use.
func NewRules() (Rules, error) {
	validator, err := protovalidate.New()
	return Rules{validator}, err
}

// Check returns one violation for each rule that msg breaks, or nil if msg is valid.
func (r Rules) Check(msg proto.Message) []apierror.Violation {
	err := r.validator.Validate(msg)
	if err == nil {
		return nil
	}

	// An error without violations means that a rule could not be evaluated. A request that cannot
	// be checked is refused.
	invalid, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok || len(invalid.Violations) == 0 {
		return []apierror.Violation{apierror.InvalidField("", "%v", err)}
	}

	violations := make([]apierror.Violation, 0, len(invalid.Violations))
	for _, v := range invalid.Violations {
		violations = append(violations, apierror.InvalidField(fieldPath(v.Proto), "%s", ruleText(msg, v)))
	}
	return violations
}

// fieldPath returns the path of the field that breaks a rule, such as "pairs[3].user_id". It
// returns "request" for a rule of the whole message.
func fieldPath(v *validate.Violation) string {
	if v.GetField() == nil {
		return "request"
	}
	return protovalidate.FieldPathString(v.GetField())
}

// Checker collects the violations of the hand-written checks of a request. Every request needs one
// for its ids: the rules of the protos limit only the length of an id, and the keys of the stores
// also rely on its characters ([events.ValidateID]).
type Checker struct{ Violations []apierror.Violation }

// isFull reports whether the checker has as many violations as one error can have. The check of a
// long list may then stop.
func (c *Checker) isFull() bool { return len(c.Violations) >= apierror.MaxViolations }

// Refuse adds a violation of a field. The formatted text says what is wrong, in words that follow
// the path of the field.
func (c *Checker) Refuse(field, format string, args ...any) {
	c.Violations = append(c.Violations, apierror.InvalidField(field, format, args...))
}

// RequireID requires a valid id.
func (c *Checker) RequireID(field, id string) {
	if err := events.ValidateID(id); err != nil {
		c.addIDError(field, err)
	}
}

// RequireIDAt requires a valid id in the i-th item of a list. suffix is the path of the id in the
// item, such as ".user_id".
func (c *Checker) RequireIDAt(list string, i int, suffix, id string) {
	// The full path is built only for an error, because frequent calls check thousands of valid
	// ids.
	if err := events.ValidateID(id); err != nil {
		c.addIDError(list+"["+strconv.Itoa(i)+"]"+suffix, err)
	}
}

// RequireIDs requires that all ids of a list are valid.
func (c *Checker) RequireIDs(list string, ids []string) {
	for i, id := range ids {
		if c.isFull() {
			return
		}
		c.RequireIDAt(list, i, "", id)
	}
}

// RequireBoard requires a board with valid ids. The board id may be empty, which means the default
// board of the owner.
func (c *Checker) RequireBoard(field string, b *skeinv1.Board) {
	if b == nil {
		c.Refuse(field, "must be given")
		return
	}
	c.RequireID(field+".owner_id", b.GetOwnerId())
	if b.GetBoardId() != "" {
		c.RequireID(field+".board_id", b.GetBoardId())
	}
}

// RequireBoardAt is RequireBoard for the i-th item of a list. suffix is the path of the board in
// the item, such as ".board".
func (c *Checker) RequireBoardAt(list string, i int, suffix string, b *skeinv1.Board) {
	// As in RequireIDAt, the path is built only for an error.
	isValidBoardID := b.GetBoardId() == "" || events.ValidateID(b.GetBoardId()) == nil
	if b != nil && isValidBoardID && events.ValidateID(b.GetOwnerId()) == nil {
		return
	}
	c.RequireBoard(list+"["+strconv.Itoa(i)+"]"+suffix, b)
}

// RequireBoards requires that all boards of a list are valid.
func (c *Checker) RequireBoards(list string, boards []*skeinv1.Board) {
	for i, b := range boards {
		if c.isFull() {
			return
		}
		c.RequireBoardAt(list, i, "", b)
	}
}

// RequirePinAt requires a pin with valid ids in the i-th item of a list. suffix is the path of the
// pin in the item, such as ".pin".
func (c *Checker) RequirePinAt(list string, i int, suffix string, p *skeinv1.Pin) {
	c.RequireIDAt(list, i, suffix+".owner_id", p.GetOwnerId())
	c.RequireIDAt(list, i, suffix+".pin_id", p.GetPinId())
}

// RequireLength requires that n, the number of items of a list, is between minimum and maxItems.
func (c *Checker) RequireLength(field string, n, minimum int) {
	if n < minimum || n > maxItems {
		c.Refuse(field, "has %d items: must have %d to %d", n, minimum, maxItems)
	}
}

// RequireAtMost requires that n, the number of items of a list, is at most maximum.
func (c *Checker) RequireAtMost(field string, n, maximum int) {
	if n > maximum {
		c.Refuse(field, "has %d items: must have at most %d", n, maximum)
	}
}

// maxPositionBytes is the limit of at_least that the protos declare.
const maxPositionBytes = 256

// RequirePosition requires that the text of the field at_least is not too long to be a position. It
// does not parse the text.
func (c *Checker) RequirePosition(text string) {
	if len(text) > maxPositionBytes {
		c.Refuse("at_least", "has %d bytes: must have at most %d", len(text), maxPositionBytes)
	}
}

// RefuseAt adds a violation of a field in the i-th item of a list. suffix is the path of the field
// in the item, or "" for the item itself. text says what is wrong.
func (c *Checker) RefuseAt(list string, i int, suffix, text string) {
	c.Refuse(list+"["+strconv.Itoa(i)+"]"+suffix, "%s", text)
}

// addIDError adds the violation of an invalid id.
func (c *Checker) addIDError(field string, err error) {
	c.Refuse(field, "%s", idErrorText(err))
}

// idErrorText returns the text of an error of [events.ValidateID], with the limits of an id.
func idErrorText(err error) string {
	switch {
	case errors.Is(err, events.ErrIDTooLong):
		return err.Error() // it has the limit
	case errors.Is(err, events.ErrIDEmpty):
		return err.Error() + ": 1 to " + strconv.Itoa(events.MaxIDBytes) + " bytes"
	}
	return err.Error() + ": at most " + strconv.Itoa(events.MaxIDBytes) + " bytes of it"
}

// UserRequest is implemented by requests about one user.
type UserRequest interface{ GetUserId() string }

// maxErasedUsers is how many users one call of EraseUser may erase.
const maxErasedUsers = 10_000

// ValidateErasure requires either a valid user_id or a list of valid user_ids.
func ValidateErasure(c *Checker, req *skeinv1.EraseUserRequest) {
	if len(req.GetUserIds()) == 0 {
		c.RequireID("user_id", req.GetUserId())
		return
	}
	if req.GetUserId() != "" {
		c.Refuse("user_id", "must not be given together with user_ids")
	}
	c.RequireAtMost("user_ids", len(req.GetUserIds()), maxErasedUsers)
	c.RequireIDs("user_ids", req.GetUserIds())
}

// ValidateUser requires a valid user_id.
func ValidateUser[P UserRequest](c *Checker, req P) { c.RequireID("user_id", req.GetUserId()) }
