// Package snapshots has the commands snapshot, restore and finalize-upgrade.
package snapshots
