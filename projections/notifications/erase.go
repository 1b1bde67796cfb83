package notifications

import "github.com/skein-feed/skein/projections"

// isErased reports whether a user was deleted. Backfills about such a user are void.
func (n *Notifications) isErased(user string) (bool, error) {
	n.key = tombstoneKey(n.key[:0], n.batch.KeyedHash(user))
	_, ok, err := n.batch.Get(n.key)
	return ok, err
}

// eraseUser removes what a deleted user did, in every partition that the store holds, and the
// user's own notifications and markers. It records the deletion, so that later backfills about the
// user are void. Once all backfills are closed, the record is not needed.
func (n *Notifications) eraseUser() error {
	user := n.ev.User

	// The facts of an actor are at the homes of the recipients, so there may be some in each
	// partition.
	err := n.batch.EachPartition(func(partition uint8) error {
		return n.batch.EraseRows(actorPrefix(nil, partition, user), func(rest []byte) error {
			id, err := cutFactKey(user, rest)
			if err != nil {
				return err
			}
			return n.eraseFact(&id)
		})
	})
	if err != nil {
		return err
	}

	if n.batch.Holds(user) {
		if err := n.eraseRecipient(user); err != nil {
			return err
		}
	}

	// Every store records the deletion, because backfills about the user may concern any partition.
	n.key = tombstoneKey(n.key[:0], n.batch.KeyedHash(user))
	if n.batch.BackfillsClosed() {
		n.batch.Delete(n.key)
	} else {
		n.batch.Set(n.key, nil)
	}
	return nil
}

// eraseRecipient removes the notifications and the markers of a deleted user.
func (n *Notifications) eraseRecipient(user string) error {
	for _, kind := range storedKinds {
		// The list has the facts that hold, and the ended rows have all others.
		err := n.batch.EraseRows(kindPrefix(nil, tagEntry, user, kind), func(rest []byte) error {
			id, _, err := cutEntryKey(user, kind, rest)
			if err != nil {
				return err
			}
			return n.eraseFact(&id)
		})
		if err != nil {
			return err
		}

		err = n.batch.EraseRows(kindPrefix(nil, tagEnded, user, kind), func(rest []byte) error {
			id, err := cutEndedKey(user, kind, rest)
			if err != nil {
				return err
			}
			return n.eraseFact(&id)
		})
		if err != nil {
			return err
		}
	}

	for _, tag := range []projections.Tag{tagState, tagGroupMarkers} {
		n.key = projections.AppendKey(n.key[:0], tag, user)
		n.batch.Delete(n.key)
	}
	return nil
}

// eraseFact removes all rows about a fact.
func (n *Notifications) eraseFact(id *factID) error {
	before, err := n.readFact(id)
	if err != nil {
		return err
	}
	if before == (fact{}) { // every row that names a fact was written together with the fact
		return projections.RowError("no fact of a notification", n.key)
	}
	return n.writeFact(id, &before, &fact{})
}
