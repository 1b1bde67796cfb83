package verify

import (
	"fmt"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
)

// Difference is a row in which a store differs from the fold of the log.
type Difference struct {
	// Partition is the partition of the row, or [projections.StoreWide].
	Partition int
	Key       []byte
	// Expected is the value in the shadow, and Found the value in the live store. nil means that
	// the row does not exist there.
	Expected, Found []byte
	// Unreadable is set if the live store has the row but cannot read it; Found is nil then.
	Unreadable error

	projection string
}

// String describes the expected and the found row to people.
func (d Difference) String() string {
	switch {
	case d.Expected == nil && d.Unreadable != nil:
		return fmt.Sprintf("%s: expected no row, found one that cannot be read: %v", d.place(), d.Unreadable)
	case d.Expected == nil:
		return fmt.Sprintf("%s: expected no row, found %s", d.place(), d.describe(d.Found))
	case d.Unreadable != nil:
		return fmt.Sprintf("%s: expected %s, found a row that cannot be read: %v", d.place(), d.describe(d.Expected), d.Unreadable)
	case d.Found == nil:
		return fmt.Sprintf("%s: expected %s, found no row", d.place(), d.describe(d.Expected))
	}
	return fmt.Sprintf("%s: expected %s, found %s", d.place(), d.describe(d.Expected), d.describe(d.Found))
}

// place returns the partition of the row, or "store" for a row of the store as a whole.
func (d Difference) place() string {
	if d.Partition == projections.StoreWide {
		return "store"
	}
	return fmt.Sprintf("partition %d", d.Partition)
}

// describe describes a row to people. A row that the projection cannot describe is shown as
// hexadecimal digits.
func (d Difference) describe(value []byte) string {
	text, err := all.Describe(d.projection, d.Key, value)
	if err != nil {
		return fmt.Sprintf("[%x = %x]", d.Key, value)
	}
	return "[" + text + "]"
}
