package crds

import "sync"

// OnDemand is a watch that starts when it is first needed. The zero value starts none.
type OnDemand struct {
	mu    sync.Mutex
	start func() error
}

// Prepare calls prepare, which returns the function that starts the watch. Ensure may have been called already: it
// waits until prepare has returned.
func (d *OnDemand) Prepare(prepare func() (start func() error, err error)) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start, err = prepare()
	return err
}

// Ensure starts the watch, unless it has been started. After an error it may be called again.
func (d *OnDemand) Ensure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.start == nil {
		return nil
	}
	if err := d.start(); err != nil {
		return err
	}
	d.start = nil
	return nil
}
