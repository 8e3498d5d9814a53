// Command benchmark compares lockstep-scheduler with the stock kube-scheduler, both running as they
// would in production: real processes, a real API server and etcd, fake nodes, and no kubelets unless
// asked for.
//
// Everything is measured on one cluster in one run, the two schedulers taking turns, because on
// another machine, or an hour later, the absolute numbers are others: only ratios are results. What
// other processes used of the machine meanwhile is reported as the load of others.
//
// With -system both are measured with what users run beside them: KWOK plays kubelets, so that pods
// come to run, which every scheduler gets as updates, and lockstep-controller keeps the status of
// PodGroups beside ours. The same gangs are measured by annotation and by PodGroup. What the
// controller uses is reported by itself and together with the scheduler's, from its start, which
// comes before the pods.
//
// With -upstream the workloads are those of Kubernetes' own benchmark, scheduler_perf: its files are read from the
// module k8s.io/kubernetes, and native gangs and ours schedule the same PodGroups in turn.
//
// With -size things that happen in a cluster are measured on 1,000, 5,000 and 10,000 nodes whose GPUs are all in use,
// and how their cost grows is told as an exponent: 1 is as the cluster does.
//
// Churn has no stock scheduler to be compared with: it counts the gangs that start out of turn while
// pods end all the time.
//
// It fails if a gang is bound in part, or if fewer pods are bound than fit. Goals that are missed are
// named, and fail nothing.
package main
