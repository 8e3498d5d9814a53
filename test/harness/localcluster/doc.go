// Package localcluster starts and stops a real Kubernetes control plane on loopback:
// etcd, kube-apiserver and kube-controller-manager built from their Go modules, and KWOK,
// which plays the kubelets of any number of fake nodes. kwokctl's binary runtime drives them.
// In place of KWOK there may be real kubelets, whose containers do nothing.
//
// Every process that a cluster starts carries the cluster's folder in its environment, so that Down
// finds and kills it by its id, also from another process and also after the creator crashed.
// All files of a cluster live in <repository>/.local/clusters/<name>; nothing outside .local is
// touched, and everything listens on 127.0.0.1 only.
//
// It starts no scheduler: tests start the one they test with Cluster.Start. It needs Linux (/proc).
package localcluster
