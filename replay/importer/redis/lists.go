package redis

import (
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/internal/comparison"
)

// entries returns the entries of lists and counts that the fact stands for.
func (f *fact) entries() []comparison.Entry {
	entry := func(kind comparison.ListKind, owner, id string) comparison.Entry {
		return comparison.Entry{List: comparison.List{Kind: kind, Owner: owner}, ID: id, At: f.at}
	}
	switch f.kind {
	case events.UserFollowed:
		return []comparison.Entry{entry(comparison.Following, f.user, f.peer), entry(comparison.Followers, f.peer, f.user)}
	case events.BoardFollowed:
		followed := entry(comparison.FollowedBoards, f.user, f.peer)
		followed.Board = f.board
		follower := entry(comparison.BoardFollowers, f.peer, f.user)
		follower.List.Board = f.board
		return append(f.boardMention(f.peer), followed, follower)
	case events.BoardCreated:
		created := entry(comparison.Boards, f.user, f.user)
		created.Board = f.board
		if f.text != "" { // a mapping need not know titles
			created.Text = comparison.TitleText(f.text)
		}
		return []comparison.Entry{created}
	case events.PinCreated:
		pin := entry(comparison.Pins, f.user, f.pin)
		pin.Text = comparison.PinText(&skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: f.user, PinId: f.pin}, BoardId: f.board, ItemId: f.item, Attributes: []byte(f.text),
		})
		board := comparison.Entry{List: comparison.List{Kind: comparison.BoardPins, Owner: f.user, Board: f.board}}
		return append(f.boardMention(f.user), pin, board)
	case events.UserBlocked:
		return []comparison.Entry{entry(comparison.Blocked, f.user, f.peer)}
	case events.UserMuted:
		return []comparison.Entry{entry(comparison.Muted, f.user, f.peer)}
	case events.Served:
		return []comparison.Entry{entry(comparison.Served, f.user, f.item)}
	case events.Reacted:
		return comparison.ReactionEntries(f.user, f.item, f.reaction, f.at)
	case events.Played:
		return []comparison.Entry{entry(comparison.PlaysOf, f.item, f.user), entry(comparison.PlaysBy, f.user, f.item)}
	}
	return nil
}

// boardMention returns the entry of the board of a fact. A board begins with its first mention,
// except the default board, which always exists.
func (f *fact) boardMention(owner string) []comparison.Entry {
	if f.board == "" {
		return nil
	}
	return []comparison.Entry{{
		List: comparison.List{Kind: comparison.Boards, Owner: owner}, ID: owner, Board: f.board, At: f.at,
	}}
}
