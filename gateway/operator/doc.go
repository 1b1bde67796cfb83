// Package operator is what the service asks of the part of it that does long work, as rebuilds, snapshots and the erasure of a user:
// an [Order] that is taken or answered with a [Refusal]. AdminService is its only caller.
package operator
