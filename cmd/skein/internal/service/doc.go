// Package service wires the parts of one skein process: the log, the stores that fold it, the
// gateway that answers queries from the stores, and the maintenance of log and stores. The commands
// `skein serve` and `skein demo` run it.
//
//	        archive ◀── archiver            auditor, snapshots, rebuilds: [maintenance]
//	            │           ▲                          │
//	            ▼           │                          ▼
//	clients ─▶ log ──────▶ hub ─────────────────▶ stores (each a projection)
//	   ▲        ▲                                      │
//	   │        │ publisher                            │ views
//	   └──── gateway ◀─────────────────────────────────┘
//
// [Open] opens the parts, beginning with the log. [OpenOn] does the same and, while it does so,
// answers on the port that the process is starting. [Service.Run] owns every goroutine. When the
// process stops, the gateway stops first, then the publisher, and the projections last, because
// calls that are under way still need them. [Service.Close] closes the parts in the reverse order
// of their opening.
//
// All parts share two resources: the free disk, of which the process leaves a reserve unused
// (diskguard.go), and the memory, which [Memory] divides among the parts that can grow.
package service
