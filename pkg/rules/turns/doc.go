// Package turns decides which of the jobs that wait is tried next.
//
// A job is what starts together: the gangs of a group, or one pod. Single pods in no queue are jobs once they did not
// fit; before, kube-scheduler's own queue has them. These are the rules:
//
//  1. One job at a time is let in, and has its turn until its attempt is over. If something happens before its attempt
//     begins that brings another job before it, it waits for another turn. A job that was let in ahead of the first in
//     order gives its turn back at most once before it is tried, one that the policy has admitted never.
//  2. A job that did not fit rests until something happens that could help it, or for a minute. Then it is a
//     candidate, as is one that was never tried.
//  3. The first candidate in order has the next turn. Jobs of queues are in the order of the policy, others in that of
//     their rank. The first of each list are compared: the one of higher rank has the turn.
//  4. If a job did not fit, those after it that ask for as much or more are not tried until something helpful happens.
//  5. After an attempt that placed nothing, no job of its kind, gang or single pod, is tried again for four times as
//     long as it took. A job that was never tried and is first in order need not wait for that.
//  6. The first in order keeps the others waiting for at most half a second in a row while it waits for the end of
//     such pauses, and for at most eleven turns in vain in a row. Then the next in order that does not pause goes
//     ahead of it (of gangs in queues, only those that a limit has kept waiting), or else the job that is overdue the
//     longest: until the pause ends, or for one turn.
//  7. A candidate is overdue a minute after its last attempt ended or, if it was never tried, a second after it came,
//     once the first in order was looked at since; in both cases no limit of a queue must have kept it since. Overdue
//     newcomers do not pause. While attempts place nothing, every second turn outside pauses of the first in order
//     goes to the job that is overdue the longest.
//
// So what becomes free goes to the first in order that can use it, nobody starves, and what it costs to look does not
// grow with the number of jobs that wait for the same.
//
// A Line is a state machine over values: it reads no clock, takes no lock and knows no client.
package turns
