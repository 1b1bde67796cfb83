// Package operator is the interface between the gateway and the part of the service that runs
// operations. Operations are long-running tasks such as rebuilds, snapshots and the erasure of a
// user. An operator either accepts an [OperationRequest] or answers with a [Refusal]. Only
// AdminService calls it.
package operator
