--[[
Slurm's job_submit/lua, run by slurmctld for every submitted job: a batch job that asks for failover (`[slurm_ft]` in its
comment) can be requeued, and its user is told what would keep it from failing over. Nothing is ever refused, and a job
without the tag is not touched.

    slurm.conf:  JobSubmitPlugins=lua          and this file beside slurm.conf on the controller

A site that has a job_submit.lua of its own calls both functions from there. The plugin cannot see --open-mode; the
client's side of it is cli_filter.lua.
--]]

local TAG = "%[slurm_ft[%] ]" -- as slurm_ft/failover/comment_tag.py reads it
local NO_REQUEUE = 0

local function asks_for_failover(job_desc)
	return job_desc.comment ~= nil and string.find(job_desc.comment, TAG) ~= nil
end

local function is_batch(job_desc)
	return job_desc.script ~= nil and job_desc.script ~= ""
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	if not asks_for_failover(job_desc) then
		return slurm.SUCCESS
	end
	if not is_batch(job_desc) then
		slurm.log_user("slurm_ft: no failover for this job: Slurm requeues batch jobs only. Submit it with sbatch.")
	elseif job_desc.requeue == NO_REQUEUE then
		slurm.log_user("slurm_ft: no failover for this job: --no-requeue forbids it. Leave that option out.")
	elseif job_desc.requeue == slurm.NO_VAL16 then
		job_desc.requeue = 1
		slurm.log_user("slurm_ft: --requeue added, since the job asks for failover.")
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
