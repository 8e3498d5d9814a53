package localcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubelets is the program that runs the kubelets of some nodes.
const kubelets = "kubelets"

// startKubelets starts the kubelets of the nodes of the pools, in one process, and waits until the nodes are Ready.
func (c *Cluster) startKubelets(ctx context.Context, pools []NodePool) error {
	list := v1.NodeList{}
	for _, pool := range pools {
		for i := range pool.Count {
			list.Items = append(list.Items, *pool.node(i))
		}
	}
	if len(list.Items) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp(c.dir, kubelets+"-")
	if err != nil {
		return fmt.Errorf("making a folder for kubelets: %w", err)
	}
	data, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encoding nodes for kubelets: %w", err)
	}
	file := filepath.Join(dir, "nodes.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("writing nodes for kubelets: %w", err)
	}
	name := filepath.Base(dir)
	process, err := c.Start(name, filepath.Join(c.bin(), kubelets), []string{c.Kubeconfig(), file}, "")
	if err != nil {
		return err
	}
	for {
		waiting, err := c.notReady(ctx, list.Items)
		if err != nil {
			return err
		}
		if waiting == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for node %s to be Ready: %w%s", waiting, context.Cause(ctx), c.tailLog(name))
		case <-process.Done():
			return fmt.Errorf("waiting for node %s to be Ready: the kubelets have ended: %w%s", waiting, process.Err(), c.tailLog(name))
		case <-time.After(servingPoll):
		}
	}
}

// notReady returns one of the nodes that is not Ready yet, or has a taint that it is not to have; "" if there is none.
func (c *Cluster) notReady(ctx context.Context, nodes []v1.Node) (string, error) {
	list, err := c.clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	ready := map[string]bool{}
	for i := range list.Items {
		node := &list.Items[i]
		ready[node.Name] = slices.ContainsFunc(node.Status.Conditions, func(condition v1.NodeCondition) bool {
			return condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue
		}) && !slices.ContainsFunc(node.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == v1.TaintNodeNotReady })
	}
	for i := range nodes {
		if !ready[nodes[i].Name] {
			return nodes[i].Name, nil
		}
	}
	return "", nil
}
