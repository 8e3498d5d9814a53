package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ownerFile is in the folder of every cluster: the process that made it.
const ownerFile = "owner.json"

// removeRetries bounds the attempts to remove the folder of a cluster.
const removeRetries = 10

// owner is the process that made a cluster: without Keep the cluster is garbage once that is gone.
type owner struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // start time of the process, since ids are reused
	Keep    bool   `json:"keep"`
}

func (o owner) alive() bool { return o.PID != 0 && startTime(o.PID) == o.Started }

// State is what List returns about a cluster.
type State struct {
	Name       string
	Kubeconfig string
	Processes  int  // how many run
	Stale      bool // its creator ended without Down, and it was not meant to stay
}

// Down takes the cluster down: no process and no file of it is left. Twice is no error.
func (c *Cluster) Down(ctx context.Context) error { return downDir(ctx, c.dir) }

// Down takes down the cluster of that name, whichever process made it. One that does not exist is
// no error.
func Down(ctx context.Context, name string) error {
	dir, err := clusterDir(name)
	if err != nil {
		return err
	}
	return downDir(ctx, dir)
}

// DownAll takes every cluster of this checkout down, those of running tests too.
func DownAll(ctx context.Context) error {
	states, err := List()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range states {
		errs = append(errs, Down(ctx, s.Name))
	}
	return errors.Join(errs...)
}

// List returns the clusters of this checkout, by name.
func List() ([]State, error) {
	parent, err := clustersDir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var states []State
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		pids, err := processesOf(dir)
		if err != nil {
			return nil, err
		}
		who := readOwner(dir)
		states = append(states, State{
			Name:       e.Name(),
			Kubeconfig: filepath.Join(dir, kubeconfigFile),
			Processes:  len(pids),
			Stale:      !who.Keep && !who.alive(),
		})
	}
	return states, nil
}

// sweep takes down what crashed tests left behind.
func sweep(ctx context.Context) error {
	states, err := List()
	if err != nil {
		return err
	}
	states = slices.DeleteFunc(states, func(s State) bool { return !s.Stale })
	var errs []error
	for _, s := range states {
		errs = append(errs, Down(ctx, s.Name))
	}
	return errors.Join(errs...)
}

func downDir(ctx context.Context, dir string) error {
	if err := killAll(ctx, dir); err != nil {
		return fmt.Errorf("taking down cluster %s: %w", filepath.Base(dir), err)
	}
	// A thread of a killed process may finish creating a file after the first sweep of the folder.
	err := os.RemoveAll(dir)
	for range removeRetries {
		if err == nil {
			return nil
		}
		time.Sleep(killPoll)
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("taking down cluster %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// claim makes the cluster's folder, in one step with its owner file: a folder without an owner
// would be swept by another process that starts a cluster at the same time.
func claim(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("making the folder for clusters: %w", err)
	}
	next, err := os.MkdirTemp(filepath.Dir(filepath.Dir(dir)), ".claim-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(next) }()
	if err := writeOwner(next, false); err != nil {
		return err
	}
	if err := os.Rename(next, dir); err != nil {
		return fmt.Errorf("claiming the folder: %w", err)
	}
	return nil
}

// writeOwner records this process as the cluster's creator, and whether the cluster outlives it.
func writeOwner(dir string, keep bool) error {
	data, err := json.Marshal(owner{PID: os.Getpid(), Started: startTime(os.Getpid()), Keep: keep})
	if err != nil {
		return fmt.Errorf("describing the owner: %w", err)
	}
	// Renamed into place: a sweep that reads half a file would find no owner.
	next := filepath.Join(dir, ownerFile+".next")
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return fmt.Errorf("writing the owner: %w", err)
	}
	if err := os.Rename(next, filepath.Join(dir, ownerFile)); err != nil {
		return fmt.Errorf("writing the owner: %w", err)
	}
	return nil
}

// readOwner returns the process that made the cluster; a folder without a readable owner file has
// no live owner.
func readOwner(dir string) owner {
	var o owner
	data, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil || json.Unmarshal(data, &o) != nil {
		return owner{}
	}
	return o
}
