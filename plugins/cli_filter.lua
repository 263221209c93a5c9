--[[
Slurm's cli_filter/lua, run by sbatch itself: the output file of a job that asks for failover (`[slurm_ft]` in its comment)
is appended to. Otherwise the next attempt would truncate it, and with it the reason for the restart.

    slurm.conf:  CliFilterPlugins=lua          and this file beside slurm.conf on the hosts where jobs are submitted

A site that sets JobFileAppend=1 in slurm.conf needs none of this.
--]]

local TAG = "%[slurm_ft[%] ]" -- as slurm_ft/failover/comment_tag.py reads it

function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
	local comment, mode = options["comment"], options["open-mode"] -- Slurm gives the mode as "a", "t" or nothing
	if options["type"] ~= "sbatch" or comment == nil or string.find(comment, TAG) == nil then
		return slurm.SUCCESS
	end
	if mode == "t" then
		slurm.log_error("slurm_ft: --open-mode=truncate: a failover will erase the output of the attempts before it.")
	elseif mode ~= "a" then
		options["open-mode"] = "append"
		slurm.log_info("slurm_ft: --open-mode=append added, so that a failover keeps the output of earlier attempts.")
	end
	return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
	return slurm.SUCCESS
end

return slurm.SUCCESS
