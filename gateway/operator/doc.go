// Package operator is what the gateway asks of the part of the service that does operations, which are long-running tasks such as rebuilds,
// snapshots and the erasure of a user. An [OperationRequest] is taken or answered with a [Refusal]. AdminService is its only caller.
package operator
