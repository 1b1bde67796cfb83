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
	// Expected is the value that the fold of the log gives, Found the value in the store; nil means that the row does not exist.
	Expected, Found []byte
	// Unreadable is the error if the row of the store cannot be read.
	Unreadable error

	projection string
}

// String returns the expected and the found row for people.
func (d Difference) String() string {
	switch {
	case d.Expected == nil && d.Unreadable != nil:
		return fmt.Sprintf("%s: expected no row, found one that cannot be read: %v", d.scope(), d.Unreadable)
	case d.Expected == nil:
		return fmt.Sprintf("%s: expected no row, found %s", d.scope(), d.words(d.Found))
	case d.Unreadable != nil:
		return fmt.Sprintf("%s: expected %s, found a row that cannot be read: %v", d.scope(), d.words(d.Expected), d.Unreadable)
	case d.Found == nil:
		return fmt.Sprintf("%s: expected %s, found no row", d.scope(), d.words(d.Expected))
	}
	return fmt.Sprintf("%s: expected %s, found %s", d.scope(), d.words(d.Expected), d.words(d.Found))
}

func (d Difference) scope() string {
	if d.Partition == projections.StoreWide {
		return "store"
	}
	return fmt.Sprintf("partition %d", d.Partition)
}

// words describes a row for people. A row that the projection cannot describe is shown in hexadecimal digits.
func (d Difference) words(value []byte) string {
	text, err := all.Describe(d.projection, d.Key, value)
	if err != nil {
		return fmt.Sprintf("[%x = %x]", d.Key, value)
	}
	return "[" + text + "]"
}
