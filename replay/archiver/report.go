package archiver

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
)

// String tells people what was restored and what is missing.
func (r Restored) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The log %x continues in epoch %d after %s.\n", r.Log, r.Epoch, describeCursor(r.Head))
	fmt.Fprintf(&b, "The archive had it up to %s.\n", describeCursor(r.Archived))
	switch s := r.Salvaged; {
	case s != nil:
		fmt.Fprintf(&b, "The damaged stream gave %s with %s.\n", describeCount(s.Envelopes, "envelope"), describeCount(s.Events, "event"))
		if len(s.Lost) > 0 {
			fmt.Fprintf(&b, "Lost: %s at %s.\n", describeCount(countSequences(s.Lost), "envelope"), describeSequences(s.Lost))
		} else {
			b.WriteString("It had no gaps.\n")
		}
	case r.Unreadable != nil:
		fmt.Fprintf(&b, "Nothing was taken from the damaged stream: %v.\n", r.Unreadable)
	default:
		b.WriteString("There was no stream to take more from.\n")
	}
	if r.Repeats != nil {
		b.WriteString(r.Repeats.String())
	}
	for _, f := range r.Stores {
		b.WriteString(f.String())
	}
	return b.String()
}

// String tells people what happens to the store.
func (f StoreOutcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is at sequence %d", f.Name, f.Cursor.Seq)
	switch {
	case f.Refused != nil:
		fmt.Fprintf(&b, " and must be built again: %v", f.Refused)
	case len(f.Holds) > 0:
		b.WriteString(" and continues")
	default:
		b.WriteString(" and continues.\n")
		return b.String()
	}
	if len(f.Holds) > 0 {
		fmt.Fprintf(&b, "; it still has what the log lost at %s", describeSequences(f.Holds))
	}
	if f.Refused == nil {
		b.WriteString(", until it is repaired or built again")
	}
	b.WriteString(".\n")
	return b.String()
}

// Ranges writes ranges of sequences for people, as in "3, 5-9".
func Ranges(list []eventlog.SeqRange) string {
	parts := make([]string, len(list))
	for i, r := range list {
		parts[i] = strconv.FormatUint(r.From, 10)
		if r.To > r.From {
			parts[i] += "-" + strconv.FormatUint(r.To, 10)
		}
	}
	return strings.Join(parts, ", ")
}

// describeSequences writes ranges of sequences, after the word for them.
func describeSequences(list []eventlog.SeqRange) string {
	if countSequences(list) == 1 {
		return "sequence " + Ranges(list)
	}
	return "sequences " + Ranges(list)
}

// countSequences returns how many sequences the ranges contain.
func countSequences(list []eventlog.SeqRange) (n uint64) {
	for _, r := range list {
		n += r.To - r.From + 1
	}
	return n
}

// describeCount writes a number of things, as in "2 events".
func describeCount(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// describeCursor writes a position for people.
func describeCursor(c events.Cursor) string {
	return fmt.Sprintf("sequence %d (%s)", c.Seq, c.LastTime.Time().UTC().Format(time.RFC3339))
}
