// Package snapshots is the commands that copy stores and make stores of copies: snapshot, restore and finalize-upgrade.
package snapshots
