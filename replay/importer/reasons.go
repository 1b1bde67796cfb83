package importer

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skein-feed/skein/events"
)

// ReasonCount counts the records that were rejected for the same reason. Reason and FirstExcerpt
// have no control characters, so they are safe to print on a terminal.
type ReasonCount struct {
	// Reason is the message with "…" instead of each quoted text, or [otherReasons].
	Reason string `json:"reason"`
	// Count is the number of records.
	Count uint64 `json:"count"`
	// FirstRecord is the lowest number of a record that was rejected for this reason. Records are
	// numbered from 1. FirstRecord is 0 if the input has no numbers, such as the keys of Redis,
	// which come in no order.
	FirstRecord uint64 `json:"first_row,omitempty"`
	// FirstExcerpt is the beginning of the record with the number FirstRecord. Without numbers, it
	// is that of the record that was added first.
	FirstExcerpt string `json:"first"`
}

// String formats the count as one line of text.
func (c ReasonCount) String() string {
	first := "first"
	if c.FirstRecord > 0 {
		first = fmt.Sprintf("first row %d", c.FirstRecord)
	}
	return fmt.Sprintf("%d rejected: %s; %s: %s", c.Count, c.Reason, first, c.FirstExcerpt)
}

// ReasonCounts has an element for each of the first 20 different reasons, in the order in which they
// were added. All records with further reasons are counted together in one more element.
type ReasonCounts []ReasonCount

const (
	// maxReasons is how many different reasons have an element of their own.
	maxReasons = 20
	// otherReasons is the reason in the element for further reasons.
	otherReasons = "other reasons"
	// excerptBytes is how many bytes of a record an excerpt shows at most. The excerpt itself may be
	// longer, because it may have escapes and "…".
	excerptBytes = 120
)

// quotedText matches a text in double quotes. Messages quote the values of a record, which differ
// from record to record.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Add counts a rejected record. message says why the record was rejected. Messages that differ only
// in texts in double quotes, and in how much white space they have, count as the same reason. number
// is the number of the record, from 1; if the input has no numbers, number must be 0 in every call.
// record is the text of the record.
func (cs *ReasonCounts) Add(message string, number uint64, record string) {
	reason := strings.Join(strings.Fields(quotedText.ReplaceAllString(message, "…")), " ")
	reason = events.EscapeControls(reason)

	c := cs.find(reason)
	if c == nil && len(*cs) >= maxReasons {
		reason = otherReasons
		c = cs.find(reason)
	}
	if c == nil {
		*cs = append(*cs, ReasonCount{Reason: reason, Count: 1, FirstRecord: number, FirstExcerpt: excerpt(record)})
		return
	}

	c.Count++
	// A later call can have a lower number. While the importer fills a batch, it adds the records
	// that it rejects itself. When it has sent the batch, it adds those that the service has
	// rejected, which may have lower numbers.
	if number < c.FirstRecord {
		c.FirstRecord = number
		c.FirstExcerpt = excerpt(record)
	}
}

// find returns the element with the reason, or nil.
func (cs *ReasonCounts) find(reason string) *ReasonCount {
	for i := range *cs {
		if (*cs)[i].Reason == reason {
			return &(*cs)[i]
		}
	}
	return nil
}

// excerpt returns at most excerptBytes bytes from the beginning of a record. It escapes control
// characters, and replaces bytes that are not UTF-8 by U+FFFD. The result ends with "…" if the
// record is longer.
func excerpt(record string) string {
	ellipsis := ""
	if len(record) > excerptBytes {
		ellipsis = "…"
		// Do not cut within a character.
		end := excerptBytes
		for end > excerptBytes-utf8.UTFMax && !utf8.RuneStart(record[end]) {
			end--
		}
		record = record[:end]
	}
	return events.EscapeControls(strings.ToValidUTF8(record, "\ufffd")) + ellipsis
}

// MaxRejects is how many records an import may reject without failing: a number, or a percentage of
// all records. The zero value allows none. An import that accepts no record fails even with 100%,
// because its input probably has another format.
type MaxRejects struct {
	// number is the limit if percent is nil.
	number uint64
	// percent is from 0 to 100. It is exact, because limits are rounded down: in floating-point
	// arithmetic, 0.57% of 10,000 records is a little less than 57, which would become 56.
	percent *big.Rat
}

// errMaxRejectsSyntax begins without the name of the flag, which the parser of the command line adds.
var errMaxRejectsSyntax = errors.New("must be a whole number such as 100, or a percentage from 0% to 100% such as 0.5%")

// decimalNumber matches a decimal number without a sign and without an exponent. Without this
// check, [big.Rat.SetString] would also accept the fraction 1/3 and exponents as in 1e1000000, with
// which a number has a megabyte.
var decimalNumber = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// UnmarshalText parses a number such as "100" or a percentage such as "0.5%".
func (m *MaxRejects) UnmarshalText(text []byte) error {
	digits, isPercentage := strings.CutSuffix(string(text), "%")
	if !isPercentage {
		number, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return errMaxRejectsSyntax
		}
		*m = MaxRejects{number: number}
		return nil
	}

	if !decimalNumber.MatchString(digits) {
		return errMaxRejectsSyntax
	}
	percent, ok := new(big.Rat).SetString(digits)
	if !ok || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return errMaxRejectsSyntax
	}
	*m = MaxRejects{percent: percent}
	return nil
}

// allowed returns how many records may be rejected if there are total records. A percentage is
// rounded down.
func (m *MaxRejects) allowed(total uint64) uint64 {
	if m.percent == nil {
		return m.number
	}
	limit := new(big.Rat).SetUint64(total)
	limit.Mul(limit, m.percent)
	limit.Mul(limit, big.NewRat(1, 100))
	return new(big.Int).Quo(limit.Num(), limit.Denom()).Uint64()
}

// Check returns an error if no record was accepted, or if the limit allows fewer than the rejected
// records. total is the number of all records. It can be larger than the numbers of accepted and of
// rejected records together, because some are skipped, so anyAccepted is a parameter of its own.
func (m *MaxRejects) Check(rejected, total uint64, anyAccepted bool) error {
	if !anyAccepted {
		return fmt.Errorf("no record was accepted: %d of %d were rejected", rejected, total)
	}
	if limit := m.allowed(total); rejected > limit {
		return fmt.Errorf("%d of %d records were rejected, and --max-rejects allows only %d", rejected, total, limit)
	}
	return nil
}
