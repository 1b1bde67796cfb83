package verify

import (
	"fmt"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
)

// Difference is a row in which a store differs from the fold of the log.
type Difference struct {
	// Partition is that of the row, or [projections.StoreWide].
	Partition int
	Key       []byte
	// Expected is the value by the log, Found that of the store; nil means there is no such row.
	Expected, Found []byte
	// Unreadable says why the row of the store has no value.
	Unreadable error

	projection string
}

// String tells people the row as it should be and as it is.
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

// words describes a row; one that no fold can have written, or of no projection that has words, by its digits.
func (d Difference) words(value []byte) string {
	text, err := all.Describe(d.projection, d.Key, value)
	if err != nil {
		return fmt.Sprintf("[%x = %x]", d.Key, value)
	}
	return "[" + text + "]"
}
