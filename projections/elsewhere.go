package projections

import "errors"

// Elsewhere is what a query knows of the homes whose rows are not in its state, because the store holds some partitions only. Each
// projection adds the questions that its queries ask, which have a meaning of their own and never are rows. An answer that is not known
// is noted as wanted, and the query continues as if it were no; whoever runs the query then fetches all that is wanted, at or after the
// position of the state, and runs it again. So a query is the same code wherever its rows are, and asks in rounds instead of one by one.
type Elsewhere interface {
	// Holds reports whether the rows of a user or item are in the state.
	Holds(home string) bool
	// Wanting reports that the query has lacked an answer, so that its result will not count.
	Wanting() bool
	// Full reports that enough is wanted for one round. The query then ends with [ErrElsewhere].
	Full() bool
}

// ErrElsewhere ends a query that must be run again with more known.
var ErrElsewhere = errors.New("projections: the query needs answers from elsewhere")
