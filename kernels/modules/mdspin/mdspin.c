// SPDX-License-Identifier: GPL-2.0
/*
 * mdspin: lets a user-space task spin in the kernel with migration disabled.
 *
 * User space cannot disable migration, so the workload rt-push-ipi asks this
 * module to: /dev/mdspin takes one ioctl,
 *
 *	MDSPIN_SPIN	_IOW('M', 1, __u64)	0x40084d01
 *
 * whose argument points to a number of nanoseconds. The calling task spins between
 * migrate_disable() and migrate_enable() until it has had the CPU for that long. It
 * stays preemptible; while it is preempted its time does not run, so a task that
 * is rarely let onto its CPU stays unmovable for long. A signal ends the call early
 * with -EINTR. At most a minute is taken; more is -EINVAL.
 */
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#define MDSPIN_SPIN	_IOW('M', 1, __u64)
#define MDSPIN_MAX_NS	(60ULL * NSEC_PER_SEC)

/* Two looks at the clock this far apart were not made in one go. */
#define MDSPIN_GAP_NS	(100ULL * NSEC_PER_USEC)

static long mdspin_spin(u64 ns)
{
	u64 spun = 0, last, now;
	long ret = 0;

	migrate_disable();
	last = ktime_get_ns();
	while (spun < ns) {
		now = ktime_get_ns();
		if (now - last < MDSPIN_GAP_NS)
			spun += now - last;
		last = now;
		if (signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		/* Without kernel preemption this is where others get the CPU. */
		cond_resched();
		cpu_relax();
	}
	migrate_enable();
	return ret;
}

static long mdspin_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	u64 ns;

	if (cmd != MDSPIN_SPIN)
		return -ENOTTY;
	if (copy_from_user(&ns, (void __user *)arg, sizeof(ns)))
		return -EFAULT;
	if (ns > MDSPIN_MAX_NS)
		return -EINVAL;
	return mdspin_spin(ns);
}

static const struct file_operations mdspin_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= mdspin_ioctl,
	.llseek		= noop_llseek,
};

static struct miscdevice mdspin_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "mdspin",
	.fops	= &mdspin_fops,
	.mode	= 0600,
};

module_misc_device(mdspin_device);

MODULE_DESCRIPTION("Spin with migration disabled on behalf of user space");
MODULE_LICENSE("GPL");
