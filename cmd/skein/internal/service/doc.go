// Package service is one process of skein: the log, the stores that fold it, the gateway that answers from them, and the maintenance of
// all three. The commands serve and demo run it.
//
//	        archive ◀── archiver            auditor, snapshots, rebuilds: [maintenance]
//	            │           ▲                          │
//	            ▼           │                          ▼
//	clients ─▶ log ──────▶ hub ─────────────────▶ stores (each a projection)
//	   ▲        ▲                                      │
//	   │        │ publisher                            │ views
//	   └──── gateway ◀─────────────────────────────────┘
//
// [Open] opens the parts from the log upwards. With [OpenOn], the port answers meanwhile that the process starts. [Service.Run] owns every
// goroutine. At the end, calls stop first, then publishing, then the projections, which answer calls until then. [Service.Close] closes
// the parts in reverse order.
//
// The parts share two limits: the free disk, which the process keeps above a reserve (diskguard.go), and the memory, which [Memory] divides
// among all parts that can grow.
package service
