package overlay

// PrefixLen is the length of what every key begins with: its shard and its tag.
const PrefixLen = 3

// PrefixEnd returns the first key after all keys that begin with prefix; nil means there is none.
func PrefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
