package events

// A reaction has a kind, which the product chooses. Likes are the kind that every product has, so
// events and keys have no text for them.

// MaxReactionBytes is the maximum length of the kind of a reaction.
const MaxReactionBytes = 32

// likeName is the name of likes in requests, answers, settings and files.
const likeName = "like"

// ReactionOf returns the [Event.Reaction] for a name that a client gives: "like" and "" name likes.
// It does not check the name.
func ReactionOf(name string) string {
	if name == likeName {
		return ""
	}
	return name
}

// ReactionName returns the name that clients see of an [Event.Reaction].
func ReactionName(reaction string) string {
	if reaction == "" {
		return likeName
	}
	return reaction
}

// IsReaction reports whether a text may be the kind of a reaction: at most [MaxReactionBytes] of
// a-z, 0-9 and _. The empty text stands for likes.
func IsReaction(s string) bool {
	if len(s) > MaxReactionBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// reactionRule is the error for other texts.
const reactionRule = "must be 1 to 32 bytes of a-z, 0-9 and _; empty means like"

// IsPrivateReaction reports whether reactions of a kind are private: only the user who reacted can
// list them, and they add to no count, no heat and no notification. A name decides this, and not a
// setting, because a node that lacks the setting would disclose them.
func IsPrivateReaction(reaction string) bool { return reaction != "" && reaction[0] == '_' }
