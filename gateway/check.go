package gateway

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

// rules checks messages against the rules in their proto.
type rules struct{ v protovalidate.Validator }

func newRules() (rules, error) {
	v, err := protovalidate.New()
	return rules{v}, err
}

func (r rules) check(msg proto.Message) []apierror.Violation {
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
		found = append(found, apierror.InvalidField(fieldPath(v.Proto), "%s", wanted(msg, v)))
	}
	return found
}

func fieldPath(v *validate.Violation) string {
	if v.GetField() == nil {
		return "request"
	}
	return protovalidate.FieldPathString(v.GetField())
}

// checker collects what is wrong with the ids of a request. The rules of the protos bound their length; that they are
// printable and without spaces, which the keys of the store rely on, is checked here.
type checker struct{ found []apierror.Violation }

// enough reports whether no more violations are looked for: an error names so many at most.
func (c *checker) enough() bool { return len(c.found) >= apierror.MaxViolations }

// id demands an id.
func (c *checker) id(field, id string) {
	if err := events.ValidateID(id); err != nil {
		c.add(field, err)
	}
}

// idAt demands an id in a list. The path is made only when it is needed.
func (c *checker) idAt(list string, i int, rest, id string) {
	if err := events.ValidateID(id); err != nil {
		c.add(list+"["+strconv.Itoa(i)+"]"+rest, err)
	}
}

func (c *checker) ids(list string, ids []string) {
	for i, id := range ids {
		if c.enough() {
			return
		}
		c.idAt(list, i, "", id)
	}
}

// board demands a board. Its id may be empty: the default board.
func (c *checker) board(field string, b *skeinv1.Board) {
	if b == nil {
		c.found = append(c.found, apierror.InvalidField(field, "must be given"))
		return
	}
	c.id(field+".owner_id", b.GetOwnerId())
	if b.GetBoardId() != "" {
		c.id(field+".board_id", b.GetBoardId())
	}
}

func (c *checker) boardAt(list string, i int, rest string, b *skeinv1.Board) {
	if b != nil && events.ValidateID(b.GetOwnerId()) == nil &&
		(b.GetBoardId() == "" || events.ValidateID(b.GetBoardId()) == nil) {
		return
	}
	c.board(list+"["+strconv.Itoa(i)+"]"+rest, b)
}

func (c *checker) boards(list string, boards []*skeinv1.Board) {
	for i, b := range boards {
		if c.enough() {
			return
		}
		c.boardAt(list, i, "", b)
	}
}

// length demands that a list has so many items, at least, and at most 1000.
func (c *checker) length(field string, n, least int) {
	if n < least || n > maxItems {
		c.found = append(c.found, apierror.InvalidField(field, "has %d items: must have %d to %d", n, least, maxItems))
	}
}

// atMostItems demands that a list has at most so many items.
func (c *checker) atMostItems(field string, n, maximum int) {
	if n > maximum {
		c.found = append(c.found, apierror.InvalidField(field, "has %d items: must have at most %d", n, maximum))
	}
}

// maxPositionBytes is the bound of at_least in the protos.
const maxPositionBytes = 256

// atLeast demands that at_least is not too long to be a position.
func (c *checker) atLeast(text string) {
	if len(text) > maxPositionBytes {
		c.found = append(c.found, apierror.InvalidField("at_least", "has %d bytes: must have at most %d", len(text), maxPositionBytes))
	}
}

// foundAt is what is wrong with a field of an item of a list.
func (c *checker) foundAt(list string, i int, rest, text string) {
	c.found = append(c.found, apierror.InvalidField(list+"["+strconv.Itoa(i)+"]"+rest, "%s", text))
}

func (c *checker) add(field string, err error) {
	c.found = append(c.found, apierror.InvalidField(field, "%s", idText(err)))
}

// idText names the limits of an id.
func idText(err error) string {
	switch {
	case errors.Is(err, events.ErrIDTooLong):
		return err.Error()
	case errors.Is(err, events.ErrIDEmpty):
		return err.Error() + ": 1 to " + strconv.Itoa(events.MaxIDBytes) + " bytes"
	}
	return err.Error() + ": at most " + strconv.Itoa(events.MaxIDBytes) + " bytes of it"
}
