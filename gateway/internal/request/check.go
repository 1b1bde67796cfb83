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

// maxItems of one request: pairs, candidates, events.
const maxItems = 1000

// Rules checks messages against the rules in their proto.
type Rules struct{ v protovalidate.Validator }

// NewRules compiles the rules that the protos state (protovalidate).
func NewRules() (Rules, error) {
	v, err := protovalidate.New()
	return Rules{v}, err
}

// Check returns what of msg breaks the rules, at most [apierror.MaxViolations]; nil if nothing does.
func (r Rules) Check(msg proto.Message) []apierror.Violation {
	err := r.v.Validate(msg)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok || len(invalid.Violations) == 0 {
		return []apierror.Violation{apierror.InvalidField("", "%v", err)}
	}
	found := make([]apierror.Violation, 0, len(invalid.Violations))
	for _, v := range invalid.Violations {
		found = append(found, apierror.InvalidField(fieldPath(v.Proto), "%s", ruleText(msg, v)))
	}
	return found
}

func fieldPath(v *validate.Violation) string {
	if v.GetField() == nil {
		return "request"
	}
	return protovalidate.FieldPathString(v.GetField())
}

// Checker collects what is wrong with the ids of a request. The rules of the protos bound their length; that they are
// printable and without spaces, which the keys of the store rely on, is checked here.
type Checker struct{ Found []apierror.Violation }

// enough reports whether no more violations are looked for: an error names so many at most.
func (c *Checker) isFull() bool { return len(c.Found) >= apierror.MaxViolations }

// ID demands an id.
func (c *Checker) ID(field, id string) {
	if err := events.ValidateID(id); err != nil {
		c.addIDError(field, err)
	}
}

// IDAt demands an id in a list. The path is made only when it is needed.
func (c *Checker) IDAt(list string, i int, rest, id string) {
	if err := events.ValidateID(id); err != nil {
		c.addIDError(list+"["+strconv.Itoa(i)+"]"+rest, err)
	}
}

// IDs checks each id of a list, and names the index of a wrong one.
func (c *Checker) IDs(list string, ids []string) {
	for i, id := range ids {
		if c.isFull() {
			return
		}
		c.IDAt(list, i, "", id)
	}
}

// Board demands a board. Its id may be empty: the default board.
func (c *Checker) Board(field string, b *skeinv1.Board) {
	if b == nil {
		c.Found = append(c.Found, apierror.InvalidField(field, "must be given"))
		return
	}
	c.ID(field+".owner_id", b.GetOwnerId())
	if b.GetBoardId() != "" {
		c.ID(field+".board_id", b.GetBoardId())
	}
}

// BoardAt checks the board in field rest of the i-th element of a list.
func (c *Checker) BoardAt(list string, i int, rest string, b *skeinv1.Board) {
	if b != nil && events.ValidateID(b.GetOwnerId()) == nil &&
		(b.GetBoardId() == "" || events.ValidateID(b.GetBoardId()) == nil) {
		return
	}
	c.Board(list+"["+strconv.Itoa(i)+"]"+rest, b)
}

// Boards checks each board of a list, and names the index of a wrong one.
func (c *Checker) Boards(list string, boards []*skeinv1.Board) {
	for i, b := range boards {
		if c.isFull() {
			return
		}
		c.BoardAt(list, i, "", b)
	}
}

// PinAt checks the pin in field rest of the i-th element of a list.
func (c *Checker) PinAt(list string, i int, rest string, p *skeinv1.Pin) {
	c.IDAt(list, i, rest+".owner_id", p.GetOwnerId())
	c.IDAt(list, i, rest+".pin_id", p.GetPinId())
}

// Length demands that a list has so many items, at least, and at most 1000.
func (c *Checker) Length(field string, n, least int) {
	if n < least || n > maxItems {
		c.Found = append(c.Found, apierror.InvalidField(field, "has %d items: must have %d to %d", n, least, maxItems))
	}
}

// AtMostItems demands that a list has at most so many items.
func (c *Checker) AtMostItems(field string, n, maximum int) {
	if n > maximum {
		c.Found = append(c.Found, apierror.InvalidField(field, "has %d items: must have at most %d", n, maximum))
	}
}

// maxPositionBytes is the bound of at_least in the protos.
const maxPositionBytes = 256

// AtLeast demands that at_least is not too long to be a position.
func (c *Checker) AtLeast(text string) {
	if len(text) > maxPositionBytes {
		c.Found = append(c.Found, apierror.InvalidField("at_least", "has %d bytes: must have at most %d", len(text), maxPositionBytes))
	}
}

// FoundAt is what is wrong with a field of an item of a list.
func (c *Checker) FoundAt(list string, i int, rest, text string) {
	c.Found = append(c.Found, apierror.InvalidField(list+"["+strconv.Itoa(i)+"]"+rest, "%s", text))
}

func (c *Checker) addIDError(field string, err error) {
	c.Found = append(c.Found, apierror.InvalidField(field, "%s", idErrorText(err)))
}

// idText names the limits of an id.
func idErrorText(err error) string {
	switch {
	case errors.Is(err, events.ErrIDTooLong):
		return err.Error()
	case errors.Is(err, events.ErrIDEmpty):
		return err.Error() + ": 1 to " + strconv.Itoa(events.MaxIDBytes) + " bytes"
	}
	return err.Error() + ": at most " + strconv.Itoa(events.MaxIDBytes) + " bytes of it"
}

// OfUser is a request about one user.
type OfUser interface{ GetUserId() string }

// ValidateUser looks at the user that a request is about.
func ValidateUser[P OfUser](c *Checker, req P) { c.ID("user_id", req.GetUserId()) }
