// Command benchmark compares lockstep-scheduler with the stock kube-scheduler, both running as they
// would in production: real processes, a real API server and etcd, fake nodes, no kubelets.
//
// Everything is measured on one cluster in one run, the two schedulers taking turns, because on
// another machine, or an hour later, the absolute numbers are others: only ratios are results. What
// else ran on the machine meanwhile is reported as the load of others.
//
// It fails if a gang is bound in part, or if fewer pods are bound than fit. Goals that are missed are
// named, and fail nothing.
package main
