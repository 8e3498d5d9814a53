package queueing

import "slices"

// Within returns those of some pods of a job, by its name, which could be placed, one after the other, without any
// ceiling being exceeded: as many as can be found by trying each option first for all of them. What the job asks for in
// its turn is theirs, whether or not it is asked for them.
func (b *Book) Within(job string, pods []string) (within []string) {
	options := 1
	for _, pod := range pods {
		options = max(options, 1+len(b.usages[pod].Or))
	}
	for first := range options {
		if list := b.withinBy(first, job, pods); first == 0 || len(list) > len(within) {
			within = list
		}
	}
	return within
}

// withinBy returns the pods that are within the ceilings if each takes the first of its options that is, beginning with
// one of them.
func (b *Book) withinBy(first int, job string, pods []string) (within []string) {
	more := map[*ceiling]int64{}
	for _, pod := range pods { // what is held for them is theirs, wherever they are placed
		u := b.usages[pod]
		if !u.Runs && (u.Held || u.Promised && u.Job != job) {
			for _, c := range b.ceilingsAbove(u.Queue) {
				more[c] -= u.Amount[c.name]
			}
		}
	}
	for _, pod := range pods {
		u, known := b.usages[pod]
		if !known || b.fits(u, first, job, more) {
			within = append(within, pod)
		}
	}
	return within
}

// fits reports whether a usage keeps all ceilings, with one of its options, beside more that is placed with it for the
// same job, and adds it to that. The first option is tried before the others.
func (b *Book) fits(u Usage, first int, job string, more map[*ceiling]int64) bool {
	ceilings := b.ceilingsAbove(u.Queue)
	for i := range len(u.Or) + 1 {
		amount := u.Option((first + i) % (len(u.Or) + 1))
		exceeds := func(c *ceiling) bool {
			used := c.of.used[c.name] - b.has(job, c.queue, c.name) + more[c]
			return amount[c.name] > 0 && used+amount[c.name] > c.most
		}
		if slices.ContainsFunc(ceilings, exceeds) {
			continue
		}
		for _, c := range ceilings {
			more[c] += amount[c.name]
		}
		return true
	}
	return false
}
