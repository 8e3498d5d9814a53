// Package turns decides which of the jobs that wait is tried next.
//
// A job is what starts together: the gangs of a group, or one pod. Single pods in no queue are jobs once they did not fit;
// before, kube-scheduler's own queue has them. These are the rules:
//
//  1. One job at a time is let in, and has its turn until its attempt is over. If something happens before its attempt
//     begins that brings another job before it, it waits for another turn; one that goes ahead of the first in order, only once.
//  2. A job that did not fit rests until something happens that could help it, or for a minute. Then it is a candidate, as
//     is one that was never tried.
//  3. The first candidate in order has the next turn. Jobs of queues are in the order of the policy, others in that of
//     their rank; of the first of both, the one of higher rank comes first.
//  4. A candidate that asks for no less than one before it that did not fit, with nothing helpful since, is not tried.
//  5. After an attempt that placed nothing, no job of its kind, gang or single pod, is tried again for four times as long as
//     it took. In the last 20 ms of a pause everybody waits. Before, single pods have their turns while a gang waits for its
//     end, and gangs that were never tried, if they are first in order, or after a second once the first in order was
//     looked at since they came.
//  6. Where nobody can go ahead since pauses are that short, and candidates are left all the time, the next in order has a
//     turn after eleven in a row that a job had in vain.
//  7. A candidate whose last attempt ended a minute ago, or that has had none for a second, is overdue. While attempts
//     place nothing, every second turn goes to the job that is overdue the longest.
//
// So what becomes free goes to the first in order that can use it, nobody starves, and what it costs to look does not
// grow with the number of jobs that wait for the same.
//
// A Room is a state machine over values: it reads no clock, takes no lock and knows no client.
package turns
