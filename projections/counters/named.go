package counters

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
)

// named is on how many boards an item is, at the most, that names them in its own row. A change of its score, as by each play,
// reads no other row then to know in which lists it stands; most items never are on more.
const named = 3

// boardNames are owners and boards by the keys of their ids, in ascending order: what follows the item in the keys of
// tagBoardShows.
type boardNames string

func boardName(owner, board string) string {
	return string(events.AppendID(events.AppendID(nil, owner), board))
}

// each calls do with each owner and board, in the order of their keys.
func (n boardNames) each(do func(owner, board string)) error {
	for rest := []byte(n); len(rest) > 0; {
		owner, after, err := events.CutID(rest)
		if err != nil {
			return errRow("boards of an item", []byte(n))
		}
		board, after, err := events.CutID(after)
		if err != nil {
			return errRow("boards of an item", []byte(n))
		}
		do(owner, board)
		rest = after
	}
	return nil
}

// change returns the names without a board and with another, each in the form of boardName, or empty. It fails unless as many
// are named then as should be.
func (n boardNames) change(leaves, comes string, boards int64) (boardNames, error) {
	var list []string
	if err := n.each(func(owner, board string) { list = append(list, boardName(owner, board)) }); err != nil {
		return "", err
	}
	if i, ok := slices.BinarySearch(list, leaves); ok {
		list = slices.Delete(list, i, i+1)
	}
	if i, ok := slices.BinarySearch(list, comes); !ok && comes != "" {
		list = slices.Insert(list, i, comes)
	}
	if int64(len(list)) != boards {
		return "", fmt.Errorf("an item is on %d boards and names %d: %w", boards, len(list), errRow("boards of an item", []byte(n)))
	}
	var all []byte
	for _, name := range list {
		all = append(all, name...)
	}
	return boardNames(all), nil
}

// name brings the names in the row of an item up to its boards, of which one went and one came, or neither did. There were so
// many before.
func (c *Counters) name(item string, it *itemRow, before int64, leaves, comes string) (err error) {
	switch {
	case it.boards > named:
		it.names = ""
	case before > named:
		var all []byte
		err = c.eachBoard(item, func(owner, board string) { all = append(all, boardName(owner, board)...) })
		it.names = boardNames(all)
	case cmp.Or(leaves, comes) != "":
		it.names, err = it.names.change(leaves, comes, it.boards)
	}
	return err
}
